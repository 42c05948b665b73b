"""The permanent history of everything: searched by name, actor, trigger, state and time."""

from datetime import UTC, datetime
from uuid import UUID

from fastapi import APIRouter, Request
from starlette.responses import Response

from interlock.api.inside import inside
from interlock.console.rendering import page
from interlock.console.session import Visitor
from interlock.db.connection import transaction
from interlock.db.core.event_search import LOOK, EventFilter, FoundEvents, search
from interlock.workflows.errors import BadInput

router = APIRouter()

PAGE = 50
FIELDS = ("name", "type", "trigger", "state", "by", "since", "until")


@router.get("/history")
async def search_history(request: Request, caller: Visitor, before: UUID | None = None) -> Response:
    """A page of events, newest first."""
    said = {name: request.query_params.get(name, "").strip() for name in FIELDS}
    wanted = EventFilter(
        projects=caller.principal.projects,
        since=_instant("since", said["since"]),
        until=_instant("until", said["until"]),
        **{name: said[name] or None for name in FIELDS[:5]},
    )

    def read() -> FoundEvents:
        with transaction(caller.access.runtime.database) as connection:
            return search(connection, wanted, before=before, limit=PAGE)

    found, port = await inside(read), caller.access.runtime.settings.flower_port
    flower = f"http://127.0.0.1:{port}/tasks" if port else None
    return page(request, "history.html", found=found, said=said, look=LOOK, flower=flower)


def _instant(name: str, text: str) -> datetime | None:
    """An instant as browsers and people write it; without a time zone it is UTC."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise BadInput(f"{name} must be an instant, such as 2026-11-26T08:00; got {text!r}") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
