"""Phases of a project: which are frozen, since when and why; operators freeze and thaw them."""

from typing import Any

from fastapi import APIRouter

from interlock.api.access import Called
from interlock.api.inside import inside
from interlock.api.models import InstanceSummary, Text
from interlock.api.operating import VersionedAct, operate
from interlock.api.parameters import Project
from interlock.api.problems import JsonAnswer, documented
from interlock.api.rows import list_model, only, row_model
from interlock.db.connection import transaction
from interlock.db.orchestration import phases
from interlock.db.orchestration.phases import PhaseRow
from interlock.workers.overrides.phases import freeze, thaw

router = APIRouter(tags=["phases"])
PHASE = row_model(PhaseRow)


@router.get("/phases", response_model=list_model(PHASE), responses=documented())
async def list_phases(caller: Called, project: Project = None) -> JsonAnswer:
    """List phases: whether they are frozen, since when and why, and how many workstreams are in them."""

    def read() -> list[dict[str, Any]]:
        with transaction(caller.access.runtime.database) as connection:
            found = caller.in_each(project, lambda of: phases.listed(connection, project=of))
        return [only(PHASE, row) for row in found]

    return JsonAnswer({"items": await inside(read)})


@router.post("/phases/{name}/freeze", response_model=InstanceSummary, responses=documented(409))
async def freeze_phase(caller: Called, name: Text, order: VersionedAct, project: Project = None) -> JsonAnswer:
    """Freeze a phase: none of its tasks starts and none of its workstreams lands until it is thawed. For operators."""
    done = await operate(caller, project, order, lambda runtime, why: freeze(runtime, name, why))
    return JsonAnswer(only(InstanceSummary, done))


@router.post("/phases/{name}/thaw", response_model=InstanceSummary, responses=documented(409))
async def thaw_phase(caller: Called, name: Text, order: VersionedAct, project: Project = None) -> JsonAnswer:
    """Thaw a frozen phase: its runs go on. For operators."""
    done = await operate(caller, project, order, lambda runtime, why: thaw(runtime, name, why))
    return JsonAnswer(only(InstanceSummary, done))
