"""Moves that operators make by hand, past guards: those that were made, and new ones."""

from collections.abc import Callable
from dataclasses import asdict
from enum import Enum
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from interlock.api.access import Called
from interlock.api.inside import inside
from interlock.api.models import Text
from interlock.api.operating import ActOrder, operate_on
from interlock.api.parameters import Asked, Limit, Project
from interlock.api.problems import JsonAnswer, documented
from interlock.api.rows import list_model, row_model
from interlock.db.connection import transaction
from interlock.db.operations import overrides
from interlock.db.operations.overrides import OverrideMove
from interlock.workers.overrides.circuit_breakers import reset_breaker
from interlock.workers.overrides.reset_task import reset_task, skip_step
from interlock.workers.overrides.retry_workstream import retry_workstream
from interlock.workers.overrides.tasks import complete_task, fail_task, unblock_task
from interlock.workers.overrides.transaction import Done, OverrideOrder
from interlock.workers.overrides.workstreams_and_patches import drop_patch, fail_workstream, validate_workstream
from interlock.workers.runtime import Runtime

router = APIRouter(tags=["overrides"])

Act = Callable[[Runtime, str, OverrideOrder], Done]
ACTS: dict[str, Act] = {
    each.__name__.replace("_", "-"): each
    for each in (
        complete_task, fail_task, reset_task, unblock_task, skip_step, retry_workstream, fail_workstream,
        validate_workstream, drop_patch, reset_breaker,
    )
}  # fmt: skip
ActName = Enum("ActName", {name: name for name in ACTS}, type=str)  # type: ignore[misc]
DONE = row_model(Done)


class OverrideOrderIn(ActOrder):
    """What to move by hand, and why."""

    instance: Text = Field(description="its UUID; or TYPE/ENTITY_ID or an entity id of the project")


@router.get("/overrides", response_model=list_model(row_model(OverrideMove)), responses=documented())
async def list_overrides(
    caller: Called,
    project: Project = None,
    hours: Annotated[int, Query(ge=1, le=87_600, description="How many to look back.")] = 24,
    by: Annotated[Asked, Query(description="Only this operator's.")] = None,
    limit: Limit = 100,
) -> JsonAnswer:
    """List the moves that operators made by hand, newest first."""

    def read() -> list[Any]:
        with transaction(caller.access.runtime.database) as connection:
            found = caller.in_each(
                project, lambda of: overrides.newest(connection, project=of, hours=hours, by=by, limit=limit)
            )
        return sorted(found, key=lambda row: row["transitioned_at"], reverse=True)[:limit]

    return JsonAnswer({"items": await inside(read)})


@router.post("/overrides/{act}", response_model=DONE, responses=documented(409, 410))
async def move_by_hand(caller: Called, act: ActName, order: OverrideOrderIn, project: Project = None) -> JsonAnswer:
    """Make a move by hand: one that the machine has, past its guards. For operators."""
    return told(await operate_on(caller, order.instance, project, order, ACTS[act.value]))


def told(done: Done) -> JsonAnswer:
    """The answer to an act: what was moved, and in a dry run what would follow."""
    return JsonAnswer(asdict(done))
