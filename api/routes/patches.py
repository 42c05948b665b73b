"""Patches: the ledger with each diff, its checks and its outcome; one is corrected, or rolled back."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from interlock.api.access import Called
from interlock.api.inside import inside
from interlock.api.models import InstanceSummary, Text
from interlock.api.operating import ActOrder, ActReason, operate_on
from interlock.api.paging import Paging
from interlock.api.parameters import Asked, Project
from interlock.api.problems import JsonAnswer, documented
from interlock.api.routes.overrides import DONE, told
from interlock.api.rows import only, page_model, row_model
from interlock.db.connection import transaction
from interlock.db.orchestration import patches
from interlock.db.orchestration.patches import ListedPatch, PatchEntry
from interlock.workers.git.rollback_plan import CompensationPlan
from interlock.workers.operations.rollbacks import order_rollback
from interlock.workers.overrides.correct_patch import correct_patch
from interlock.workflows.errors import BadInput
from interlock.workflows.machines.orchestration.patch_ledger import PATCH_LEDGER_1_1

router = APIRouter(tags=["patches"])

TYPE = "patch_ledger"
SHOWN = row_model(PatchEntry, without={"body", "context", "metadata"}, diff=str)
STATES = ", ".join(PATCH_LEDGER_1_1.states)


class CorrectedPatch(ActOrder):
    """A patch in place of one that was quarantined, rolled back or dropped."""

    based_on: Text = Field(description="the ledger entry that was set aside: its name or UUID")
    diff: str | None = Field(None, max_length=4_000_000, description="the corrected diff; default: unchanged")
    workstream: Text | None = Field(None, description="where it lands; default: the old patch's workstream")


class RollbackOrderIn(ActReason):
    """How and why a landed patch is rolled back."""

    plan: CompensationPlan | None = Field(
        None, description="default: revert its commit, and run the gates that it passed again"
    )
    commit_sha: Text | None = Field(None, description="instead of a plan: the commit that undid it by hand")


@router.get("/patches", response_model=page_model(row_model(ListedPatch)), responses=documented(409, 410))
async def list_patches(
    paging: Paging,
    run: Annotated[Asked, Query(description="Of this run: its name or UUID.")] = None,
    state: Asked = None,
) -> JsonAnswer:
    """List ledger entries, newest first."""
    if state is not None and state not in PATCH_LEDGER_1_1.states:
        raise BadInput(f"state: there is none {state!r}. There are: {STATES}.")
    of_run = await paging.of(run, "run")
    return await paging.page(patches.page, key="ledger_id", run=of_run, states=(state,) if state else ())


@router.get("/patches/{ref:path}", response_model=SHOWN, responses=documented(409, 410))
async def show_patch(caller: Called, ref: Text, project: Project = None) -> JsonAnswer:
    """Show a ledger entry: its diff, its checks, its moves, its commit, and why it was set aside."""

    def read() -> dict[str, Any]:
        found = caller.instance(ref, project, TYPE)
        with transaction(caller.access.runtime.database) as connection:
            entry = patches.entry(connection, found["id"])
        return {**entry, "diff": entry["body"]}

    shown = await inside(read)
    return JsonAnswer(only(SHOWN, shown))


@router.post("/patches", response_model=DONE, responses=documented(409, 410))
async def hand_in_patch(caller: Called, patch: CorrectedPatch, project: Project = None) -> JsonAnswer:
    """Hand in a corrected patch in place of one that was set aside. For operators.

    Its task is made anew with the patch as its work, and the task's gates judge it before it is committed.
    """
    return told(
        await operate_on(
            caller,
            patch.based_on,
            project,
            patch,
            lambda runtime, ref, why: correct_patch(runtime, ref, patch.diff, why, workstream=patch.workstream),
            TYPE,
        )
    )


@router.post(
    "/patches/{ref:path}/roll-back", status_code=202, response_model=InstanceSummary, responses=documented(409, 410)
)
async def order_patch_rollback(
    caller: Called, ref: Text, order: RollbackOrderIn, project: Project = None
) -> JsonAnswer:
    """Have workers roll a landed patch back. For operators.

    The answer is the `rollback` that they carry out, or the one of this patch that is under way: follow it as any
    instance, until it is `rolled_back` or `failed`.
    """
    done = await operate_on(
        caller,
        ref,
        project,
        order,
        lambda runtime, id_, why: order_rollback(runtime, id_, why, order.plan, mended=order.commit_sha),
        TYPE,
    )
    return JsonAnswer(only(InstanceSummary, done), 202)
