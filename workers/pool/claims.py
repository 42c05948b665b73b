"""A worker's claim on a task: taken when the task starts, and ended under its token.

The claim and the start of its task are one commit; so are its end and the report. If the claim no longer counts (its
task was cancelled, timed out, or given to another worker), the report is refused and only the claim is ended.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy import Connection

from interlock.db.connection import transaction
from interlock.db.fast_path import Row
from interlock.db.orchestration import claim_triggers, claims
from interlock.db.orchestration.commands import CommandRow, row_of
from interlock.db.statements import Rows
from interlock.workers.client.partition_drainer import settle
from interlock.workers.client.receipts import NotSettled
from interlock.workers.engine.applier import Applier
from interlock.workers.orchestration.scheduler import Pass, at_once
from interlock.workers.pool import inputs
from interlock.workers.pool.inputs import InputMissing
from interlock.workers.pool.registration import Registration
from interlock.workers.pool.report import Report, failure
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import Refused

log = structlog.get_logger()

COMPLETED = "execution_completed"
TURNS = 3  # tasks in a row that could not be begun: then something else is wrong, and a later wake-up tries again


class StaleClaim(Refused):
    """The claim no longer counts: its task was cancelled, timed out or given to another worker.

    Nothing of the report was taken. Stop the work and claim another task.
    """


@dataclass(frozen=True, slots=True)
class Claim:
    """A task that a worker has claimed and that is running.

    Attributes:
        id: the claim's number, by which events and logs name it.
        token: the fencing token, part of every report: a worker that lost the task is refused. Nobody else is told it.
        worker_id, task_id, run_id, workstream_id, project: of its instances.
        task: the task's entity id.
        kind: command, shell, agent or patch.
        context: the task's whole context: an agent's instructions, and its terms.
        command: what a worker is to run or land; None if neither a plan nor an operator gave a command.
        timeout_seconds: how long it may run.
        retry_count: how often it was tried before.
        inputs: the results of other tasks that it gets, by their names in the plan.
    """

    id: int
    token: int
    worker_id: UUID
    task_id: UUID
    run_id: UUID
    workstream_id: UUID
    project: str
    task: str
    kind: str
    context: Mapping[str, Any]
    timeout_seconds: float
    retry_count: int
    command: CommandRow | None = None
    inputs: Mapping[str, Any] = field(default_factory=dict)


def take(runtime: Runtime, registered: Registration) -> Claim | None:
    """Claim the next fitting task and start it; None if no task fits, or the worker may take none.

    A task whose inputs are missing fails, and the next one is claimed.

    Raises:
        NotYours: the secret is not the worker's.
        NotSettled: its start was accepted but could not be applied in 30 s; the claim is given back.
    """
    for _ in range(TURNS):
        task, begun = at_once(runtime, partial(_claimed, runtime, registered))
        if task is None or begun is None:
            return None
        begun.publish(runtime)
        status = begun.applied.requests.get(claim_triggers.start_id(task["claim_id"]))
        if not (status == "applied" or _started(runtime, registered, task)):
            release(runtime, registered, task["token"])
        elif (given := _inputs(runtime, registered, task)) is not None:
            return _claim(task, given)
    return None


def _claimed(
    runtime: Runtime, registered: Registration, connection: Connection, applier: Applier | None
) -> tuple[Row | None, Pass | None]:
    """Claim a task and let it start, in one commit; None if none fits.

    Only a workstream's first start leads to anything by itself; the scheduler counts the others with what moves next.
    """
    task = claims.claim(connection, registered.worker_id, registered.secret)
    if task is None:
        return None, None
    begun = Pass(connection, task["run_id"], runtime.catalogue, applier)
    begun.up_to_date = task["workstream_state"] == "executing"
    begun.apply(_named(claim_triggers.claimed(task)))
    return task, begun


def held(runtime: Runtime, registered: Registration) -> list[Claim]:
    """The claims that a worker holds, with their tokens, the oldest first.

    A task whose inputs are missing fails, as where it is claimed.

    Raises:
        NotYours: the secret is not the worker's.
    """
    with transaction(runtime.database) as connection:
        found = claims.claimed(connection, registered.worker_id, registered.secret)
    given = [(task, _inputs(runtime, registered, task)) for task in found]
    return [_claim(task, values) for task, values in given if values is not None]


def _inputs(runtime: Runtime, registered: Registration, task: Row) -> dict[str, Any] | None:
    """The values of a started task's inputs. If one is missing, the task has failed: None."""
    try:
        with transaction(runtime.database) as connection:
            return inputs.gathered(connection, task["context"], task["project"])
    except InputMissing as missing:
        log.warning("input_missing", task=task["entity_id"], error=str(missing))
        with suppress(StaleClaim):  # it moved on meanwhile
            finish(runtime, registered, task["token"], failure(str(missing)))
        return None


def _started(runtime: Runtime, registered: Registration, task: Row) -> bool:
    try:
        start = settle(runtime, claim_triggers.start_id(task["claim_id"]), task["task_id"])
    except NotSettled:
        return_task(runtime, registered, task["token"], f"worker {task['worker']} could not start it in time")
        raise
    if start["status"] != "applied":
        log.warning("start_refused", task=task["entity_id"], status=start["status"], why=start["result"])
    return bool(start["status"] == "applied")


def finish(runtime: Runtime, registered: Registration, token: int, report: Report) -> None:
    """Report how a task ended, and end the claim. Repeating the same report is harmless.

    Raises:
        NotYours: the secret is not the worker's.
        StaleClaim: the claim no longer counts; it is ended all the same.
    """

    def outcome(ended: Row) -> Rows:
        counts = not ended["revoked"] and ended["current_state"] == "running"
        return [claim_triggers.report(ended, report.trigger, report.metadata)] if counts else []

    if not _end(runtime, registered, token, outcome):
        raise StaleClaim(
            "the claim is no longer valid: its task was cancelled, timed out or given to another worker. "
            "The report was rejected; claim another task."
        )


def release(runtime: Runtime, registered: Registration, token: int) -> None:
    """End a claim without a report, because its task moved on without this worker."""
    _end(runtime, registered, token, lambda _: [])


def return_task(runtime: Runtime, registered: Registration, token: int, reason: str) -> None:
    """End a claim and, if it still counts, let its task be tried again."""
    _end(runtime, registered, token, lambda ended: claim_triggers.task_returned(ended, reason))


def is_current(runtime: Runtime, token: int) -> bool:
    """Whether the claim still counts."""
    with transaction(runtime.database) as connection:
        return claims.is_held(connection, token)


def _end(runtime: Runtime, registered: Registration, token: int, outcome: Callable[[Row], Rows]) -> bool:
    """End a claim, and fire the triggers of `outcome`; whether a report was taken, now or before.

    What follows from them is done in the same commit, unless others are at it.
    """

    def end(connection: Connection, applier: Applier | None) -> tuple[bool, Rows, Pass | None]:
        ended = claims.end(connection, registered.worker_id, registered.secret, token)
        if ended is None:
            return claims.is_reported(connection, registered.worker_id, token), [], None
        rows, freed = outcome(ended), claim_triggers.freed(ended)
        done = Pass(connection, ended["run_id"], runtime.catalogue, applier)
        completes = done.foresee(ended["task_id"]) if any(row["trigger"] == COMPLETED for row in rows) else []
        if done.apply([*_named(rows), *completes, *_named(freed)]):
            done.run(patient=False)
        return bool(rows), freed, done

    reported, freed, done = at_once(runtime, end)
    if done is not None:
        done.publish(runtime)
        for each in freed:  # only an idle worker may claim, so apply this now instead of waiting for a node
            if done.applied.requests.get(each["request_id"], "pending") == "pending":
                with suppress(NotSettled):
                    settle(runtime, each["request_id"], registered.worker_id)
    return reported


def _named(rows: Rows) -> list[dict[str, Any]]:
    """The rows, each with what its wake-up says of it."""
    return [
        {**row, "wakeup": {"workflow_type": "crew", "entity_id": str(row["workflow_id"]), "triggered_by": "crew"}}
        for row in rows
    ]


def _claim(task: Row, given: Mapping[str, Any]) -> Claim:
    return Claim(
        id=task["claim_id"],
        token=task["token"],
        worker_id=task["worker_id"],
        task_id=task["task_id"],
        run_id=task["run_id"],
        workstream_id=task["workstream_id"],
        project=task["project"],
        task=task["entity_id"],
        kind=task["kind"],
        context=task["context"],
        timeout_seconds=task["timeout_sec"],
        retry_count=task["retry_count"],
        command=row_of(task["command"]) if task["command"] else None,
        inputs=given,
    )
