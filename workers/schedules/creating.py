"""Creates schedules, and reads how they stand."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import RowMapping

from interlock.db.connection import transaction
from interlock.db.core import instances, schedules
from interlock.db.core.instances import InstanceRow
from interlock.db.core.schedules import ScheduleFiring
from interlock.workers.client.client import Client
from interlock.workers.engine.trigger_request import Firing, row
from interlock.workers.orchestration import submission
from interlock.workers.schedules.firing import run_name
from interlock.workflows.errors import BadInput
from interlock.workflows.input.arguments import FreeObject, FreeText, door
from interlock.workflows.plan.plan import Plan
from interlock.workflows.schedules.actions import Create, Submit, read_action
from interlock.workflows.schedules.times import following, read_catch_up, read_times

NEXT = 5  # times that are shown
LATEST = 10  # firings that are shown


@dataclass(frozen=True, slots=True)
class Standing:
    """How a schedule stands: its row, its next times (of a paused one, if it is resumed now), its newest firings."""

    row: Mapping[str, Any]
    following: tuple[datetime, ...]
    firings: tuple[ScheduleFiring, ...] = ()


@door
def create_schedule(
    client: Client, name: FreeText, times: FreeObject, does: FreeObject, *, by: str, catch_up: FreeObject | None = None
) -> InstanceRow:
    """Create a schedule (SCHEDULE-1).

    Args:
        client: of the project.
        name: unique in the project.
        times: `{"cron": "0 3 * * *", "time_zone": "Europe/Berlin"}` or `{"every_seconds": 900}`, with a `start` if it
            is not the present.
        does: as `firing`, `creating` or `submitting` returns it.
        by: who creates it: in that name it acts (SCHEDULE-4).
        catch_up: `{"policy": "skip" | "one" | "all"}`, for `all` with `within_seconds`; default: `one`.

    Returns:
        The schedule's instance.

    Raises:
        AlreadyExists: the project has, or had, a schedule of that name.
        BadInput: the terms are not valid.
        NotYours: `by` may not do what it would do.
    """
    read_times(times, datetime.now(UTC))
    read_catch_up(catch_up)
    action = read_action(does)
    if isinstance(action, Create):
        client.birth(action.type, action.named(datetime.now(UTC)), context=action.context, by=by)
    if isinstance(action, Submit):
        submission.require_run_name(run_name(name, datetime.now(UTC)))
    context = {"times": times, "does": does} | ({"catch_up": catch_up} if catch_up else {})
    return client.create("schedule", name, context=context, by=by)


@door
def firing(client: Client, ref: str | UUID, trigger: str, data: FreeObject | None = None) -> dict[str, Any]:
    """The `does` of a schedule that fires a trigger on an instance.

    Raises:
        UnknownInstance, AmbiguousInstance, UnknownTrigger: there is none.
        BadInput: the instance is of another project, or the data is not what a trigger can have.
    """
    limit = client.runtime.settings.context_limit_bytes
    with transaction(client.runtime.database) as connection:
        found = instances.find(connection, ref, client.project)
    if found["project"] != client.project:
        raise BadInput(f"{ref} is of project {found['project']}; a schedule fires in its own, {client.project}")
    definition = client.runtime.catalogue.get(found["workflow_type"], found["definition_version"])
    definition.require_trigger(trigger)
    fired = row(Firing(found["id"], trigger, "system", data=data or {}), found["id"], limit_bytes=limit)
    definition.require_data(trigger, fired["metadata"])
    said = {"data": fired["metadata"]} if data else {}
    return {"fire": {"instance": str(found["id"]), "trigger": trigger, **said}}


@door
def submitting(client: Client, plan: Plan, directory: Path, *, by: str, priority: int = 0) -> dict[str, Any]:
    """The `does` of a schedule that runs a plan. Its patches are read now, so that it is the same plan each time.

    Raises:
        BadInput: as `submit`, or the plan is of another project.
    """
    if plan.project not in (None, client.project):
        raise BadInput(f"the plan is of project {plan.project}; a schedule runs plans in its own, {client.project}")
    checked = submission.checked(
        client.runtime, plan, project=client.project, by=by, directory=directory, priority=priority
    )
    body = plan.model_dump(mode="json", exclude_defaults=True)
    for workstream in body["workstreams"]:
        for task in workstream["tasks"]:
            if patch_id := checked.patches.of_task.get(f"{workstream['id']}/{task['id']}"):
                task["patch"] = {"diff": checked.patches.texts[patch_id]} | (
                    {"message": message} if (message := task["patch"].get("message")) else {}
                )
    return {"submit": {"plan": body, "directory": str(checked.directory), "priority": priority}}


@door
def standing(client: Client, ref: str | UUID) -> Standing:
    """How a schedule stands, also one that has ended.

    Raises:
        UnknownInstance, AmbiguousInstance: there is none.
    """
    with transaction(client.runtime.database) as connection:
        found = instances.find(connection, ref, client.project, "schedule")
        (kept,) = schedules.listed(connection, schedule_id=found["id"], ended=True)
        firings = schedules.firings(connection, found["id"], limit=LATEST)
    return Standing(dict(kept), _following(kept, NEXT), tuple(firings))


@door
def standings(client: Client, project: str | None, *, ended: bool = False, times: int = 1) -> list[Standing]:
    """The schedules of one project or all, each with its next `times`; those that have ended only if asked for."""
    with transaction(client.runtime.database) as connection:
        found = schedules.listed(connection, project=project, ended=ended)
    return [Standing(dict(each), _following(each, times)) for each in found]


def _following(schedule: RowMapping, count: int) -> tuple[datetime, ...]:
    if schedule["state"] == "ended":
        return ()
    try:
        times = read_times(schedule["context"].get("times"), schedule["created_at"])
    except BadInput:  # raw SQL wrote it: it lapses
        return ()
    after = datetime.now(UTC) if schedule["state"] == "paused" else schedule["settled"]
    return tuple(following(times, after, count))
