"""Dead letters: triggers and effects whose attempts are used up, why, and a new set of attempts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Form, Request
from starlette.responses import Response

from interlock.api.access import Caller
from interlock.api.inside import inside
from interlock.api.models import Text
from interlock.console.acting import Reason, act, why_no_operator
from interlock.console.rendering import page
from interlock.console.session import Lister, Visitor
from interlock.db.connection import transaction
from interlock.db.core import effects, requests
from interlock.workers.overrides.redrive import redrive
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.runtime import Runtime

router = APIRouter()

MOST = 100
Row = dict[Any, Any]


@router.get("/dead")
async def list_dead(request: Request, caller: Lister) -> Response:
    """What is dead, newest first."""
    triggers, acts = await inside(_read, caller)
    projects = Counter(each["project"] for each in (*triggers, *acts) if not each["why_not"])
    return page(request, "dead.html", triggers=triggers, effects=acts, most=MOST, projects=projects)


@router.post("/dead/redrive")
async def redrive_dead(
    request: Request, caller: Visitor, id: Annotated[Text, Form()], project: Annotated[Text, Form()], reason: Reason
) -> Response:
    """Give one of them a new set of attempts."""

    def work(runtime: Runtime, order: OverrideOrder) -> str:
        redrive(runtime, [id], order, project=project)
        return f"{id} is tried again."

    return await act(request, caller, project, reason, work, title="Redriven")


@router.post("/dead/redrive-all")
async def redrive_all(request: Request, caller: Visitor, project: Annotated[Text, Form()], reason: Reason) -> Response:
    """Give all that is dead in a project a new set of attempts, but what is quarantined or cannot be read."""

    def work(runtime: Runtime, order: OverrideOrder) -> str:
        done = redrive(runtime, None, order, project=project)
        left = "".join(f" {len(ids)} {why} left." for why, ids in done.left.items() if ids)
        return f"{len(done.ids)} in {project} are tried again.{left}"

    return await act(request, caller, project, reason, work, title="Redriven")


def _read(caller: Caller) -> tuple[list[Row], list[Row]]:
    with transaction(caller.access.runtime.database) as connection:
        triggers = caller.in_each(None, lambda of: requests.dead(connection, project=of, limit=MOST))
        acts = caller.in_each(None, lambda of: effects.dead(connection, project=of, limit=MOST))
    return _newest(caller, triggers), _newest(caller, acts)


def _newest(caller: Caller, rows: Sequence[Mapping[Any, Any]]) -> list[Row]:
    shown = [{"id": row.get("request_id"), **row, "why_not": why_no_operator(caller, row["project"])} for row in rows]
    return sorted(shown, key=lambda row: str(row["finished_at"]), reverse=True)[:MOST]
