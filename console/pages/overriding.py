"""What is done by hand in place of the machines' own ways, most of it by operators; the buttons are on other pages."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

from fastapi import APIRouter, Form, Request
from starlette.responses import Response

from interlock.api.inside import inside
from interlock.api.models import Text
from interlock.api.operating import ActOrder
from interlock.console.acting import Reason, Version, act, act_on, told
from interlock.console.pages import instances
from interlock.console.rendering import say
from interlock.console.session import Visitor
from interlock.workers.operations.rollbacks import order_rollback
from interlock.workers.overrides.circuit_breakers import reset_breaker
from interlock.workers.overrides.phases import thaw
from interlock.workers.overrides.rerun_gate import rerun_gate
from interlock.workers.overrides.reset_task import reset_task
from interlock.workers.overrides.retry_workstream import retry_workstream
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.overrides.workstreams_and_patches import drop_patch
from interlock.workers.runtime import Runtime
from interlock.workers.supervision.actions import ActionFailed, ActionOrder
from interlock.workers.supervision.jobs import Jobs

router = APIRouter()


class _Override(NamedTuple):
    type: str
    title: str
    does: Callable[..., Any]


OVERRIDES: Mapping[str, _Override] = {
    "reset-task": _Override("task", "The task is run again", reset_task),
    "rerun-gate": _Override("test_gate", "The gate is run again", rerun_gate),
    "retry-workstream": _Override("workstream", "The workstream is done again", retry_workstream),
    "drop-patch": _Override("patch_ledger", "The patch is dropped", drop_patch),
    "reset-breaker": _Override("circuit_breaker", "The breaker is closed", reset_breaker),
}
Name = Literal["reset-task", "rerun-gate", "retry-workstream", "drop-patch", "reset-breaker"]


@router.post("/overrides/{name}/{id_}")
async def override(  # noqa: PLR0917 - its path and form
    request: Request, caller: Visitor, name: Name, id_: UUID, reason: Reason, if_version: Version = None
) -> Response:
    """Override, in the visitor's name."""
    which, said = OVERRIDES[name], ActOrder(reason=reason, if_version=if_version)
    title = which.title
    return await act_on(request, caller, id_, said, lambda *given: told(which.does(*given)), which.type, title=title)


@router.post("/patches/{id_}/roll-back")
async def roll_patch_back(request: Request, caller: Visitor, id_: UUID, reason: Reason) -> Response:
    """Have workers roll a landed patch back."""

    def work(runtime: Runtime, ref: str, order: OverrideOrder) -> str:
        made = order_rollback(runtime, ref, order)
        return f"Its rollback {made['entity_id']} is {made['current_state']}; this page shows what becomes of it."

    said = ActOrder(reason=reason)
    return await act_on(request, caller, id_, said, work, "patch_ledger", title="It is being rolled back")


@router.post("/phases/thaw")
async def thaw_phase(  # noqa: PLR0917 - its form
    request: Request,
    caller: Visitor,
    name: Annotated[Text, Form()],
    project: Annotated[Text, Form()],
    reason: Reason,
    if_version: Version = None,
) -> Response:
    """Thaw a phase."""

    def work(runtime: Runtime, order: OverrideOrder) -> str:
        made = thaw(runtime, name, order, project=project)
        return f"The phase {made['entity_id']} is {made['current_state']}. What it held goes on."

    return await act(request, caller, project, reason, work, title="Thawed", if_version=if_version)


@router.post("/jobs/{id_}/validate")
async def validate_job(request: Request, caller: Visitor, id_: UUID, reason: Reason) -> Response:
    """Accept a submitted job: whoever submitted it may, and operators."""

    def work() -> str:
        with caller.located(str(id_), None, write=True) as (client, ref):
            done = Jobs(client).validate(ref, ActionOrder(caller.principal.name, reason))
        return f"The job {done.subject['entity_id']} waits for its workers."

    try:
        return say(request, "Validated", await inside(work))
    except ActionFailed as failed:
        return instances.told(request, failed.receipt)
