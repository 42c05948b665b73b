"""Brakes that are on, and their release; budgets and limits, and how much of each is used."""

from collections.abc import Mapping
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
from interlock.db.core import brakes, budgets, limits
from interlock.workers.overrides.brakes import release_brake
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.runtime import Runtime

router = APIRouter()

HELD = 10  # of the triggers that one brake holds
COUNTED = 1_000  # of what waits for a limit, no more is counted
MOST = 100  # limits, and budgets


@router.get("/brakes")
async def list_brakes(request: Request, caller: Lister) -> Response:
    """The brakes, the oldest first, each with the oldest triggers that it holds; what is used of budgets and limits."""
    return page(request, "brakes.html", brakes=await inside(_read, caller), **await inside(_bounds, caller))


@router.post("/brakes/release")
async def release(
    request: Request,
    caller: Visitor,
    name: Annotated[Text, Form()],
    project: Annotated[Text, Form()],
    reason: Reason,
) -> Response:
    """Release a brake."""

    def work(runtime: Runtime, order: OverrideOrder) -> str:
        made = release_brake(runtime, name, order, project=project)
        return f"The brake {made['entity_id']} is {made['current_state']}. What it held goes on."

    return await act(request, caller, project, reason, work, title="Released")


def _read(caller: Caller) -> list[Mapping[str, Any]]:
    with transaction(caller.access.runtime.database) as connection:
        found = caller.in_each(None, lambda of: brakes.listed(connection, project=of))
        return [
            {
                **each,
                "requests": brakes.held(connection, each["brake_id"], limit=HELD),
                "why_not": why_no_operator(caller, each["project"]),
            }
            for each in found
        ]


def _bounds(caller: Caller) -> dict[str, Any]:
    """The budgets and limits in force, each with its uses."""
    with transaction(caller.access.runtime.database) as connection:
        spent = caller.in_each(None, lambda of: budgets.listed(connection, project=of))[:MOST]
        counted = caller.in_each(None, lambda of: limits.listed(connection, project=of, most=MOST))[:MOST]
        return {
            "budgets": budgets.with_uses(connection, spent),
            "limits": limits.with_uses(connection, counted, most=COUNTED),
        }
