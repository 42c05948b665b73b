"""Circuit breakers: which tools are called, which are not for now, and the closing of one by hand."""

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from interlock.api.access import Caller
from interlock.api.inside import inside
from interlock.console.acting import why_no_operator
from interlock.console.rendering import page
from interlock.console.session import Lister
from interlock.db.connection import transaction
from interlock.db.orchestration import breakers
from interlock.workers.circuit_breakers import known

router = APIRouter()

MOST = 200


@router.get("/breakers")
async def list_breakers(request: Request, caller: Lister) -> Response:
    """The breakers, those that turn calls away first."""
    return page(request, "breakers.html", rows=await inside(_read, caller))


def _read(caller: Caller) -> list[dict[str, Any]]:
    runtime = caller.access.runtime
    with transaction(runtime.database) as connection:
        found = caller.in_each(None, lambda of: breakers.page(connection, project=of, limit=MOST))
    shown = [known(runtime, each["project"], each["tool_id"]) for each in found[:MOST]]
    shown.sort(key=lambda each: (each.state == "CLOSED", each.project, each.tool_id))
    return [{"breaker": each, "why_not": why_no_operator(caller, each.project)} for each in shown]
