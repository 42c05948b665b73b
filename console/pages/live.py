"""What open pages ask, to know whether anything has changed: the end of history."""

from fastapi import APIRouter
from starlette.responses import Response

from interlock.api.inside import inside
from interlock.api.problems import JsonAnswer
from interlock.console.session import Visitor
from interlock.db.connection import transaction
from interlock.db.core import history

router = APIRouter()


@router.get("/live")
async def live(caller: Visitor) -> Response:
    """The newest event's place; another one than before means that pages are out of date."""

    def read() -> str:
        with transaction(caller.access.runtime.database) as connection:
            return history.newest_place(connection)

    return JsonAnswer({"place": await inside(read)})
