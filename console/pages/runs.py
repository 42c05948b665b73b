"""Runs: the newest, and one as a graph with its workstreams, tasks, gates and patches."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request
from starlette.responses import Response

from interlock.api.access import Caller
from interlock.api.inside import inside
from interlock.api.parameters import Asked, Before
from interlock.api.parameters import page as keyset
from interlock.console.acting import why_no_operator
from interlock.console.rendering import page
from interlock.console.run_graph import drawn, graph
from interlock.console.session import Lister, Visitor
from interlock.db.connection import transaction
from interlock.db.core.portions import Portion
from interlock.db.orchestration import plans, run_tree
from interlock.workers.orchestration.run_view import RunView, Watch

router = APIRouter()

PAGE = 50
ROWS = 500  # tasks and gates of one run
Row = Mapping[str, Any]


@router.get("/runs")
async def list_runs(request: Request, caller: Lister, state: Asked = None, before: Before = None) -> Response:
    """The newest runs."""

    def read() -> list[dict[str, Any]]:
        with transaction(caller.access.runtime.database) as connection:
            portion = Portion(caller.principal.projects, PAGE + 1, before)
            return [dict(row) for row in plans.newest_runs(connection, portion, state=state or None)]

    found = keyset(await inside(read), PAGE)
    return page(request, "runs.html", runs=found["items"], next=found["next"], state=state)


@router.get("/runs/{run_id}")
async def show_run(request: Request, caller: Visitor, run_id: UUID) -> Response:
    """A run, as it is now."""
    view, nodes = await inside(_read, caller, run_id)
    project = view.run["project"]
    return page(
        request,
        "run.html",
        run=view.run,
        view=view,
        graph=drawn(nodes),
        below=_tasks_beside(view),
        most=ROWS,
        why_not="" if caller.principal.may_write(project) else "Your session is read-only.",
        why_no_operator=why_no_operator(caller, project),
    )


def _read(caller: Caller, run_id: UUID) -> tuple[RunView, Any]:
    caller.instance(str(run_id), None, "run")
    view = Watch(caller.access.runtime, run_id).view
    with transaction(caller.access.runtime.database) as connection:
        return view, graph(view, run_tree.dependencies(connection, run_id))


def _tasks_beside(view: RunView) -> list[tuple[Row, list[Row], list[Row]]]:
    """Each workstream with its tasks and gates, those that are at work first, as far as there is room for rows."""
    shown = [row for row in view.workstreams.values() if not row["left_out"]]
    shown.sort(key=_ended_last)
    found, room = [], ROWS
    for row in shown[:ROWS]:
        tasks = sorted(view.tasks_of(row["id"]), key=_ended_last)[:room]
        gates = sorted(view.gates_of(row["id"]), key=_ended_last)[: room - len(tasks)]
        room -= len(tasks) + len(gates)
        found.append((row, tasks, gates))
    return found


def _ended_last(row: Row) -> tuple[bool, int]:
    return row["completed_at"] is not None, row["id"].int
