"""Workers: what each holds, whether it answers, and what operators do to it."""

from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Form, Request
from starlette.responses import Response

from interlock.api.access import Caller
from interlock.api.inside import inside
from interlock.api.operating import ActOrder
from interlock.console.acting import Reason, Version, act_on, why_no_operator
from interlock.console.rendering import page
from interlock.console.session import Visitor
from interlock.db.connection import transaction
from interlock.db.orchestration import claims, workers
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.overrides.workers import dismiss
from interlock.workers.pool.registration import CREW
from interlock.workers.runtime import Runtime
from interlock.workflows.output.counts import number_of

router = APIRouter()

MOST = 200


@router.get("/workers")
async def list_workers(request: Request, caller: Visitor, ended: bool = False) -> Response:
    """The workers that the session covers, with the tasks that each holds."""
    silent, all_of_them = caller.access.runtime.settings.silent_seconds, caller.principal.may_read(CREW)
    shown = await inside(_read, caller, ended=ended)
    return page(request, "workers.html", workers=shown, ended=ended, silent=silent, all_of_them=all_of_them)


@router.post("/workers/{id_}/shutdown")
async def shut_down(  # noqa: PLR0917 - its form
    request: Request,
    caller: Visitor,
    id_: UUID,
    reason: Reason,
    if_version: Version = None,
    now: Annotated[bool, Form()] = False,
    if_silent: Annotated[bool, Form()] = False,
) -> Response:
    """Shut a worker down: it finishes what it holds, or with `now` gives it back."""

    def work(runtime: Runtime, ref: str, order: OverrideOrder) -> str:
        left = dismiss(runtime, UUID(ref), order, now=now, if_silent=if_silent)
        return f"It finishes {number_of(left, 'task')} first." if left else "It is shut down."

    said = ActOrder(reason=reason, if_version=if_version)
    return await act_on(request, caller, id_, said, work, "worker", "uet_worker", title="Shutting down")


def _read(caller: Caller, *, ended: bool) -> list[dict[str, Any]]:
    with transaction(caller.access.runtime.database) as connection:
        found = workers.page(connection, projects=caller.principal.projects, ended=ended, limit=MOST)
        held = claims.held(connection, [each["worker_id"] for each in found])
    now = datetime.now(UTC)
    return [
        dict(each)
        | {
            "silent_seconds": (now - each["last_heartbeat"]).total_seconds(),
            "holds": [claim for claim in held if claim["worker_id"] == each["worker_id"]],
            "why_not": why_no_operator(caller, each["project"] or CREW),
        }
        for each in found
    ]
