"""Boards: a machine's states as columns, with the newest instances in each."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from interlock.api.inside import inside
from interlock.api.parameters import Asked
from interlock.console.machines import kind_of
from interlock.console.rendering import page
from interlock.console.session import Lister, Visitor
from interlock.db.connection import transaction
from interlock.db.core import newest_instances
from interlock.db.core.newest_instances import LOOKED_AT, BoardRow

router = APIRouter()

CARDS = 30  # of each state
FIRST = "story"


@router.get("/boards")
async def first_board(request: Request, _caller: Visitor) -> Response:
    """The board of the machine that most begin with."""
    return RedirectResponse(request.url.replace(path=f"/boards/{FIRST}"), 303)


@router.get("/boards/{type}")
async def board(request: Request, caller: Lister, type: str, words: Asked = None) -> Response:
    """The board of a type."""
    catalogue = caller.access.runtime.catalogue
    definition = catalogue.get(type)

    def look() -> Sequence[BoardRow]:
        with transaction(caller.access.runtime.database) as connection:
            projects = caller.principal.projects
            return newest_instances.board(connection, type, projects=projects, words=words or "", cards=CARDS)

    columns: defaultdict[str, list[Any]] = defaultdict(list)
    for each in await inside(look):
        columns[each["current_state"]].append(each)
    states = [*definition.states, *(each for each in columns if each not in definition.states)]
    return page(
        request,
        "board.html",
        type=type,
        types=sorted(catalogue.newest),
        words=words,
        states=states,
        columns=columns,
        kinds={each: kind_of(definition, each) for each in states},
        looked_at=LOOKED_AT,
    )
