"""Gates: what judges a run's work, what their commands printed, and failed ones run again."""

from typing import Annotated

from fastapi import APIRouter, Query

from interlock.api.access import Called
from interlock.api.inside import inside
from interlock.api.models import Text
from interlock.api.operating import ActOrder, operate_on
from interlock.api.paging import Paging
from interlock.api.parameters import Asked, Project
from interlock.api.problems import JsonAnswer, documented
from interlock.api.routes.overrides import DONE, told
from interlock.api.rows import page_model, row_model
from interlock.db.connection import transaction
from interlock.db.orchestration import gates
from interlock.db.orchestration.gates import ListedGate, ShownGate
from interlock.workers.overrides.rerun_gate import rerun_gate

router = APIRouter(tags=["gates"])

TYPE = "test_gate"


@router.get("/gates", response_model=page_model(row_model(ListedGate)), responses=documented(409, 410))
async def list_gates(
    paging: Paging,
    run: Annotated[Asked, Query(description="Of this run: its name or UUID.")] = None,
    patch: Annotated[Asked, Query(description="Those that judge this patch: its ledger entry's name or UUID.")] = None,
    state: Asked = None,
) -> JsonAnswer:
    """List gates, newest first; one that was run again is listed beside its successor."""
    of_run, of_patch = await paging.of(run, "run"), await paging.of(patch, "patch_ledger")
    return await paging.page(gates.page, run=of_run, patch=of_patch, state=state)


@router.get("/gates/{ref:path}", response_model=row_model(ShownGate), responses=documented(409, 410))
async def show_gate(caller: Called, ref: Text, project: Project = None) -> JsonAnswer:
    """Show a gate: its command, its exit code, and what the command printed."""

    def read() -> ShownGate:
        found = caller.instance(ref, project, TYPE)
        with transaction(caller.access.runtime.database) as connection:
            return gates.get(connection, found["id"])

    return JsonAnswer(await inside(read))


@router.post("/gates/{ref:path}/rerun", response_model=DONE, responses=documented(409, 410))
async def rerun_failed_gate(caller: Called, ref: Text, order: ActOrder, project: Project = None) -> JsonAnswer:
    """Run a failed gate again, as a new gate in its place, once what was wrong outside is mended. For operators.

    Tasks that were cancelled or failed because of the gate are made anew.
    """
    return told(await operate_on(caller, ref, project, order, rerun_gate, TYPE))
