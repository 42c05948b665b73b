"""Dead letters: triggers and effects whose attempts are used up, and new attempts for them."""

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter
from pydantic import BaseModel, Field

from interlock.api.access import Called
from interlock.api.inside import inside
from interlock.api.models import Text
from interlock.api.operating import ActReason, operate
from interlock.api.parameters import Limit, Project
from interlock.api.problems import JsonAnswer, documented
from interlock.api.rows import only
from interlock.db.connection import transaction
from interlock.db.core import effects, requests
from interlock.workers.overrides.redrive import redrive
from interlock.workflows.errors import BadInput

router = APIRouter(tags=["dead letters"])

AT_ONCE = 1_000


class DeadLetter(BaseModel):
    """What is used up of a request and of an effect alike."""

    id: str
    workflow_id: UUID
    workflow_type: str
    entity_id: str
    project: str
    attempts: int
    finished_at: datetime | None
    error: str | None


class DeadRequest(DeadLetter):
    """A trigger whose attempts are used up, or that an operator has set aside."""

    trigger: str
    triggered_by: str


class DeadEffect(DeadLetter):
    """An action on the outside world whose attempts are used up."""

    name: str


class DeadLetters(BaseModel):
    """Dead requests and effects, newest first."""

    requests: list[DeadRequest]
    effects: list[DeadEffect]


class RedriveOrder(ActReason):
    """What to give new attempts, and why: some, or all of the project."""

    ids: list[Annotated[Text, Field(min_length=1)]] = Field(
        [], max_length=AT_ONCE, description="of requests and effects"
    )
    all: bool = Field(False, description="all, but those that are quarantined or cannot be read")


class RedrivenLetters(BaseModel):
    """What has new attempts; of `all`, what was left: `quarantined`, `unreadable`."""

    redriven: list[str]
    left: dict[str, list[str]]


@router.get("/dead", response_model=DeadLetters, responses=documented())
async def list_dead(caller: Called, project: Project = None, limit: Limit = 100) -> JsonAnswer:
    """List dead letters: at most `limit` requests, and as many effects."""

    def read() -> dict[str, Any]:
        with transaction(caller.access.runtime.database) as connection:
            triggers = caller.in_each(project, lambda of: requests.dead(connection, project=of, limit=limit))
            acts = caller.in_each(project, lambda of: effects.dead(connection, project=of, limit=limit))
        return {
            "requests": _newest([only(DeadRequest, {**row, "id": row["request_id"]}) for row in triggers], limit),
            "effects": _newest([only(DeadEffect, row) for row in acts], limit),
        }

    return JsonAnswer(await inside(read))


def _newest(rows: list[dict[str, Any]], limit: int) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: str(row["finished_at"]), reverse=True)[:limit]


@router.post("/dead/redrive", response_model=RedrivenLetters, responses=documented())
async def redrive_dead(caller: Called, order: RedriveOrder, project: Project = None) -> JsonAnswer:
    """Give dead requests and effects of a project a new set of attempts. For operators."""
    if bool(order.ids) == order.all:
        raise BadInput("give one of ids and all")
    ids, of_project = (None if order.all else order.ids), caller.project(project)
    done = await operate(caller, of_project, order, lambda runtime, why: redrive(runtime, ids, why, project=of_project))
    return JsonAnswer({"redriven": done.ids, "left": done.left})
