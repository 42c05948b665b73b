"""What is stuck: since when, why, and what would help, as a button where the console can do it."""

from dataclasses import dataclass

from fastapi import APIRouter, Request
from starlette.responses import Response

from interlock.api.access import Caller
from interlock.api.inside import inside
from interlock.api.parameters import Asked
from interlock.console.acting import why_no_operator
from interlock.console.cures import Cure, ForShell, cure
from interlock.console.rendering import page
from interlock.console.session import Lister
from interlock.workers.operations.stuck.detector import Stuck, survey

router = APIRouter()

MOST = 200


@dataclass(frozen=True, slots=True)
class StuckRow:
    """A stuck instance, and its cure: None, with why in `for_shell`, is a command that only a shell can run.

    `why_not`: why the visitor cannot carry it out; empty: they may try.
    """

    stuck: Stuck
    cure: Cure | None
    why_not: str = ""
    for_shell: str = ""


@router.get("/stuck")
async def list_stuck(request: Request, caller: Lister, all: bool = False, type: Asked = None) -> Response:
    """What is stuck; with `all`, everything that waits."""
    total, found = await inside(_read, caller, (type or "").strip() or None, everything=all)
    rows = [_row(caller, each) for each in found]
    return page(request, "stuck.html", rows=rows, total=total, everything=all, type=type or "")


def _row(caller: Caller, stuck: Stuck) -> StuckRow:
    found, project = cure(stuck), stuck.project
    if isinstance(found, ForShell):
        return StuckRow(stuck, None, for_shell=found.why)
    if found.fields is None:
        return StuckRow(stuck, found)
    read_only = "" if caller.principal.may_write(project) else "your session is read-only"
    return StuckRow(stuck, found, why_no_operator(caller, project) if found.by_operators else read_only)


def _read(caller: Caller, type_: str | None, *, everything: bool) -> tuple[int, list[Stuck]]:
    runtime = caller.access.runtime
    parts = caller.in_each(
        None, lambda of: [survey(runtime, type_=type_, project=of, everything=everything, limit=MOST)]
    )
    found = sorted((each for _, part in parts for each in part), key=lambda each: -each.seconds)
    return sum(total for total, _ in parts), found[:MOST]
