"""What operators do to one instance by hand, in place of its machine's own ways; the buttons are on other pages."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple
from uuid import UUID

from fastapi import APIRouter, Request
from starlette.responses import Response

from interlock.api.operating import ActOrder
from interlock.console.acting import Reason, Version, act_on, told
from interlock.console.session import Visitor
from interlock.workers.overrides.circuit_breakers import reset_breaker
from interlock.workers.overrides.rerun_gate import rerun_gate
from interlock.workers.overrides.reset_task import reset_task
from interlock.workers.overrides.retry_workstream import retry_workstream
from interlock.workers.overrides.workstreams_and_patches import drop_patch

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
