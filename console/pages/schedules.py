"""Schedules: what each does and when next. They are paused, resumed and ended by triggers, as any instance is moved."""

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from interlock.api.access import Caller
from interlock.api.inside import inside
from interlock.console.acting import why_no_operator
from interlock.console.rendering import page
from interlock.console.session import Lister
from interlock.workers.schedules import creating
from interlock.workers.schedules.creating import Standing
from interlock.workers.schedules.wording import in_words, move_of, what_it_does

router = APIRouter()


@router.get("/schedules")
async def list_schedules(request: Request, caller: Lister, ended: bool = False) -> Response:
    """The schedules, each with its next five times."""
    return page(request, "schedules.html", schedules=await inside(_read, caller, ended=ended), ended=ended)


def _read(caller: Caller, *, ended: bool) -> list[dict[str, Any]]:
    client = caller.access.client(caller.principal, caller.access.runtime.settings.project)
    found = caller.in_each(None, lambda of: creating.standings(client, of, ended=ended, times=creating.NEXT))
    return [_shown(caller, each) for each in found]


def _shown(caller: Caller, found: Standing) -> dict[str, Any]:
    row, name = found.row, caller.principal.name
    end = move_of({"created_by": row["by"]}, "end", name)
    others = "" if row["by"] == name else f"Who may: {row['by']}, who created it."
    read_only = "" if caller.principal.may_write(row["project"]) else "Your session is read-only."
    return {
        **row,
        "following": found.following,
        "times": in_words(row["context"]),
        "does": what_it_does(row),
        "end": end,
        "why_not": read_only or others,
        "why_no_end": why_no_operator(caller, row["project"]) if end == "stop" else read_only,
    }
