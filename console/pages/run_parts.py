"""A task with its attempts and what it printed, a gate with its output, a patch with its diff."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request
from sqlalchemy import Connection
from starlette.responses import Response

from interlock.api.access import Caller
from interlock.api.inside import inside
from interlock.console.acting import why_no_operator
from interlock.console.rendering import page
from interlock.console.session import Visitor
from interlock.db.connection import transaction
from interlock.db.orchestration import gates, patches
from interlock.workers.pool import attempts
from interlock.workers.pool.attempts import TaskAttempt
from interlock.workers.pool.output_reading import OutputReading, OutputVerdict
from interlock.workflows.errors import UnknownInstance
from interlock.workflows.scheduling.next_trigger import ENDED

router = APIRouter()

SHOWN = 200_000  # characters of an output: its end
Attempt = Annotated[int, Query(ge=0, le=1_000_000)]
Row = Mapping[str, Any]


@router.get("/tasks/{task_id}")
async def show_task(request: Request, caller: Visitor, task_id: UUID, attempt: Attempt = 0) -> Response:
    """A task, with its attempts, and what one of them printed: the newest, unless another is named."""
    return page(request, "task.html", **await inside(_task, caller, task_id, attempt))


@router.get("/gates/{gate_id}")
async def show_gate(request: Request, caller: Visitor, gate_id: UUID) -> Response:
    """A gate: what it judged, and what it printed."""
    return page(request, "gate.html", **await inside(_part, caller, gate_id, "test_gate", gate=gates.get))


@router.get("/patches/{ledger_id}")
async def show_patch(request: Request, caller: Visitor, ledger_id: UUID) -> Response:
    """A patch of the ledger: its diff, its checks, what came of it and why."""
    return page(request, "patch.html", **await inside(_part, caller, ledger_id, "patch_ledger", entry=patches.entry))


def _part(caller: Caller, id_: UUID, type_: str, **read: Callable[[Connection, UUID], object]) -> dict[str, Any]:
    """What the page of a gate or a patch shows: its instance, and what is read of it, by its name there."""
    shown = _shown(caller, id_, type_)
    with transaction(caller.access.runtime.database) as connection:
        found = {name: of(connection, id_) for name, of in read.items()}
    return {"shown": shown, "why_not": why_no_operator(caller, shown["project"]), **found}


def _shown(caller: Caller, id_: UUID, type_: str) -> dict[str, Any]:
    shown = caller.shown(caller.client(ref=id_), id_)
    if shown["workflow_type"] != type_:
        raise UnknownInstance(f"There is no {type_} {id_} in the projects of this session.")
    return shown


def _task(caller: Caller, task_id: UUID, number: int) -> dict[str, Any]:
    shown, runtime = _shown(caller, task_id, "task"), caller.access.runtime
    with transaction(runtime.database) as connection:
        tried = attempts.of_task(connection, task_id)
        entries = patches.diffs(connection, task_id)
        run = _run_of(connection, task_id)
    chosen = next((each for each in tried if each.number == (number or len(tried))), None)
    printed, verdict = ("", None)
    if chosen and run:
        printed, verdict = runtime.blocking(lambda: _printed(caller, run, shown, chosen))
    return {
        "shown": shown,
        "run_id": run,
        "attempts": tried,
        "chosen": chosen,
        "printed": printed[-SHOWN:],
        "cut": max(0, len(printed) - SHOWN),
        "verdict": verdict,
        "patches": entries,
        "ended": shown["current_state"] in ENDED["task"],
        "why_not": why_no_operator(caller, shown["project"]),
    }


def _run_of(connection: Connection, task_id: UUID) -> UUID | None:
    with suppress(UnknownInstance):  # tasks of the legacy lineage belong to none
        return patches.of_task(connection, task_id)["run_id"]
    return None


def _printed(caller: Caller, run: UUID, task: Row, attempt: TaskAttempt) -> tuple[str, OutputVerdict]:
    """What an attempt printed by now, and whether it is what history says."""
    kind = str(task["context"].get("kind", "command"))
    settings = caller.access.runtime.settings
    reading = OutputReading(settings, run_id=run, task_id=task["id"], kind=kind, attempt=attempt)
    text = reading.rest(attempt) if attempt.ended_at else reading.more()
    return text, reading.verdict()
