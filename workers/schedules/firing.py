"""Fires what schedules are due to fire: each time once, in the commit that settles it.

A sweep locks schedules, so no other takes them. What they fire, the requests' ids and the next time are written in one
transaction: a sweep that is killed has done nothing. What cannot be fired is an event of its schedule, and stops no
other.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import structlog
from celery.exceptions import SoftTimeLimitExceeded
from pydantic import ValidationError
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from interlock.db.connection import retryable, transaction
from interlock.db.core import requests, schedules
from interlock.db.core.request_rows import Right, as_found, internal, own_id
from interlock.db.core.schedules import DueSchedule
from interlock.db.fast_path import Row
from interlock.workers.client.client import Client
from interlock.workers.engine import creation
from interlock.workers.orchestration import submission
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import AlreadyExists, BadInput, InterlockError, NotYours
from interlock.workflows.input import names
from interlock.workflows.plan.plan import Plan
from interlock.workflows.schedules.actions import Action, Create, Fire, Submit, read_action, stamp
from interlock.workflows.schedules.times import ON_TIME, DueTimes, due, read_catch_up, read_times

log = structlog.get_logger()

BATCH = 500  # schedules of one commit
PLANS = 20  # submitted by one sweep; the next goes on
LONGEST_REASON = 500  # characters


@dataclass(frozen=True, slots=True)
class Step:
    """What a schedule is to do now: `action` at each of its times, or to end because of `lapse`."""

    schedule: DueSchedule
    action: Action | None
    due: DueTimes
    lapse: str = ""


@dataclass(slots=True)
class Fired:
    """What was written, and the wake-ups to send after the commit."""

    fired: int = 0
    failed: set[UUID] = field(default_factory=set)
    wakeups: list[Mapping[str, Any]] = field(default_factory=list)
    effects: list[Row] = field(default_factory=list)

    def __iadd__(self, other: "Fired") -> "Fired":
        self.fired += other.fired
        self.failed |= other.failed
        self.wakeups += other.wakeups
        self.effects += other.effects
        return self


def fire_due(runtime: Runtime) -> int:
    """Fire all that is due; returns how many times were fired.

    Raises:
        DBAPIError: the database is away. What was not committed is fired by the next call.
    """
    fired = 0
    while (found := _batch(runtime, submits=False, limit=BATCH))[0] == BATCH:
        fired += found[1]
    fired += found[1]
    for _ in range(PLANS):
        taken, submitted = _batch(runtime, submits=True, limit=1)
        fired += submitted
        if not taken:
            break
    return fired


def _batch(runtime: Runtime, *, submits: bool, limit: int) -> tuple[int, int]:
    """Fire what a number of schedules are due to fire, in one commit; returns how many schedules and times it took."""
    with transaction(runtime.database) as connection:
        known = [(each.type, each.version) for each in runtime.catalogue]
        steps = [_step(each) for each in schedules.due(connection, known=known, submits=submits, limit=limit)]
        done = _fire_all(runtime, connection, steps)
        schedules.settle(connection, [_settled(step, done.failed) for step in steps])
    runtime.wakeups.partitions(done.wakeups)
    runtime.wakeups.effects(done.effects)
    return len(steps), done.fired


def _step(schedule: DueSchedule) -> Step:
    """Decide what a schedule does now."""
    try:
        terms = schedule["context"]
        action = read_action(terms.get("does"))
        times = read_times(terms.get("times"), schedule["created_at"])
        catch_up = read_catch_up(terms.get("catch_up"))
    except BadInput as error:  # raw SQL wrote it, or this release reads less than another
        return Step(schedule, None, DueTimes((), None), f"its terms cannot be read: {error}")
    found = due(times, catch_up, after=schedule["settled"], now=schedule["now"])
    if isinstance(action, Fire) and (schedule["target_id"] is None or schedule["target_ended"]):
        return Step(schedule, action, DueTimes((), None), "the instance that it fires at has ended")
    return Step(schedule, action, found, "" if found.following else "it has no time left")


def _settled(step: Step, failed: Collection[UUID]) -> dict[str, Any]:
    """What to store. A lapsed schedule is looked at again until its end is applied; asking again changes nothing."""
    fires = () if step.schedule["schedule_id"] in failed else step.due.fires
    return {
        "schedule_id": step.schedule["schedule_id"],
        "next_at": step.due.following or step.schedule["now"] + ON_TIME,
        "fired": len(fires),
        "last_due": max(fires, default=None),
    }


def _fire_all(runtime: Runtime, connection: Connection, steps: Sequence[Step]) -> Fired:
    """Fire together what can be written together; if PostgreSQL refuses any of it, each schedule by itself."""
    done, rows = Fired(), [_lapse(step) for step in steps if step.lapse]
    firing = [step for step in steps if isinstance(step.action, Fire) and step.due.fires]
    try:
        with connection.begin_nested():
            made = [row for step in firing for row in _requests(runtime, step)]
            done += _accept(connection, made)
    except (DBAPIError, InterlockError) as error:
        _require_own_fault(error)
        for step in firing:
            done += _alone(runtime, connection, step)
    for step in steps:
        if step.due.fires and not isinstance(step.action, Fire):
            done += _alone(runtime, connection, step)
    done.wakeups += _accept(connection, rows).wakeups
    return done


def _alone(runtime: Runtime, connection: Connection, step: Step) -> Fired:
    """What a schedule does, all its times or none. If it cannot, that becomes an event of the schedule."""
    try:
        with connection.begin_nested():
            return _do(runtime, connection, step)
    except Exception as error:
        _require_own_fault(error)
        log.warning("schedule_failed", schedule=step.schedule["name"], exc_info=not isinstance(error, InterlockError))
        said = _accept(connection, [_failed(step, error)])
        return Fired(failed={step.schedule["schedule_id"]}, wakeups=said.wakeups)


def _require_own_fault(error: Exception) -> None:
    """Raise an error again that says nothing of the schedule: the database is away, or the sweep's time is up."""
    if retryable(error) or isinstance(error, SoftTimeLimitExceeded):
        raise error


def _do(runtime: Runtime, connection: Connection, step: Step) -> Fired:
    if lacks := step.schedule["token_lacks"]:
        raise NotYours(f"the schedule acts with the token that it was created with, but {lacks}")
    match step.action:
        case Fire():
            return _accept(connection, _requests(runtime, step))
        case Create() as action:
            return _create(runtime, connection, step, action)
        case Submit() as action:
            return _submit(runtime, connection, step, action)
    raise AssertionError(step.action)


def _requests(runtime: Runtime, step: Step) -> list[dict[str, Any]]:
    """The requests of a schedule's times, which PostgreSQL judges as its creator's (SCHEDULE-5)."""
    schedule, action = step.schedule, step.action
    assert isinstance(action, Fire)
    assert schedule["target_type"] is not None
    runtime.catalogue.get(schedule["target_type"], schedule["target_version"]).require_trigger(action.trigger)
    wakeup = _wakeup(schedule["target_type"], schedule["target_name"], schedule["created_by"])
    return [
        internal(
            own_id("schedule", schedule["schedule_id"], stamp(each)),
            action.instance,
            action.trigger,
            by=schedule["created_by"],
            right=Right(
                "anyone", " ".join(filter(None, (f"schedule:{schedule['schedule_id']}", schedule["born_proof"])))
            ),
            origin="timer",
            metadata=action.data,
        )
        | {"wakeup": wakeup}
        for each in step.due.fires
    ]


def _create(runtime: Runtime, connection: Connection, step: Step, action: Create) -> Fired:
    schedule = step.schedule
    client = Client(runtime, project=schedule["project"])
    births = [
        replace(
            client.birth(action.type, action.named(each), context=action.context, by=schedule["created_by"]),
            proof=schedule["born_proof"],
        )
        for each in step.due.fires
    ]
    delivered = creation.deliver(connection, births)
    if taken := [birth.entity_id for birth in births if birth.id not in delivered.new]:
        raise AlreadyExists(f"{action.type}/{taken[0]} exists in project {schedule['project']} already")
    return Fired(len(births), effects=list(delivered.effects_due))


def _submit(runtime: Runtime, connection: Connection, step: Step, action: Submit) -> Fired:
    schedule, done = step.schedule, Fired()
    try:
        plan = Plan.model_validate(action.plan)
    except ValidationError as error:
        raise BadInput(f"its plan cannot be read any more: {error.errors()[0]['msg']}") from error
    checked = submission.checked(
        runtime,
        plan,
        project=schedule["project"],
        by=schedule["created_by"],
        directory=Path(action.directory),
        priority=action.priority,
        proof=schedule["born_proof"],
    )
    for each in step.due.fires:
        _, wakeups = submission.write(runtime, connection, checked, run_name(schedule["name"], each))
        done += Fired(1, wakeups=list(wakeups))
    return done


def run_name(schedule: str, due: datetime) -> str:
    """The name of the run that a schedule submits for one time."""
    return f"{schedule}-{stamp(due)}"


def _accept(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> Fired:
    accepted = requests.accept_named(connection, rows)
    return Fired(len(accepted), wakeups=list(accepted))


def _failed(step: Step, error: Exception) -> dict[str, Any]:
    first, last = step.due.fires[0], step.due.fires[-1]
    times = f"{last:%Y-%m-%d %H:%M:%S} UTC" + (f" and others since {first:%Y-%m-%d %H:%M:%S}" if last > first else "")
    return _own(step, "firing_failed", f"{times}: {_words(error)}", stamp(last))


def _lapse(step: Step) -> dict[str, Any]:
    return _own(step, "lapse", step.lapse)


def _own(step: Step, trigger: str, reason: str, *parts: str) -> dict[str, Any]:
    schedule = step.schedule
    row = internal(
        own_id(schedule["schedule_id"], trigger, *parts),
        schedule["schedule_id"],
        trigger,
        by="system",
        right=as_found(schedule["version"]),
        origin="timer",
        metadata={"reason": reason},
    )
    return row | {"wakeup": _wakeup("schedule", schedule["name"], "system")}


def _wakeup(type_: str, entity_id: str | None, by: str) -> dict[str, Any]:
    return {"workflow_type": type_, "entity_id": entity_id, "triggered_by": by}


def _words(error: Exception) -> str:
    said = str(error.orig if isinstance(error, DBAPIError) else error).strip() or type(error).__name__
    return names.likeness(" ".join(said.split()))[:LONGEST_REASON].strip()
