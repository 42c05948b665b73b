"""Circuit breakers: which tools' calls are refused for a while, and why."""

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter

from interlock.api.access import Called
from interlock.api.inside import inside
from interlock.api.models import Text
from interlock.api.operating import VersionedAct, operate
from interlock.api.parameters import Limit, Project
from interlock.api.problems import JsonAnswer, documented
from interlock.api.rows import list_model, row_model
from interlock.db.orchestration.breakers import Breaker
from interlock.workers.circuit_breakers import configured, known, listed
from interlock.workers.overrides.circuit_breakers import reset

router = APIRouter(tags=["breakers"])

CHANGES = 20  # of its configuration, the newest
BREAKER = row_model(Breaker)
SHOWN = row_model(Breaker, configurations=list[dict[str, Any]])


@router.get("/breakers", response_model=list_model(BREAKER), responses=documented())
async def list_breakers(caller: Called, project: Project = None, limit: Limit = 100) -> JsonAnswer:
    """List circuit breakers, by tool."""

    def read() -> list[dict[str, Any]]:
        found = caller.in_each(project, lambda of: listed(caller.access.runtime, project=of, limit=limit))
        return [asdict(row) for row in found[:limit]]

    return JsonAnswer({"items": await inside(read)})


@router.get("/breakers/{tool:path}", response_model=SHOWN, responses=documented())
async def show_breaker(caller: Called, tool: Text, project: Project = None) -> JsonAnswer:
    """Show a tool's breaker, and the newest changes of its configuration: who made them, and why."""
    of_project = caller.project(project)

    def read() -> dict[str, Any]:
        found = known(caller.access.runtime, of_project, tool)
        changes = configured(caller.access.runtime, found.breaker_id, limit=CHANGES)
        return asdict(found) | {"configurations": changes}

    return JsonAnswer(await inside(read))


@router.post("/breakers/{tool:path}/reset", response_model=BREAKER, responses=documented(409))
async def reset_breaker(caller: Called, tool: Text, order: VersionedAct, project: Project = None) -> JsonAnswer:
    """Close a breaker at once, even during its cooldown. For operators."""
    of_project = caller.project(project)
    done = await operate(caller, of_project, order, lambda runtime, why: reset(runtime, of_project, tool, why))
    return JsonAnswer(asdict(done))
