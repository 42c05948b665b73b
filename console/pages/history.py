"""The permanent history of everything: searched by name, actor, trigger, state and time."""

from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel
from starlette.responses import Response

from interlock.api.inside import inside
from interlock.api.models import Text
from interlock.console.rendering import page
from interlock.console.session import Lister
from interlock.db.connection import transaction
from interlock.db.core.event_search import LOOK, EventFilter, FoundEvents, search
from interlock.workflows.errors import BadInput

router = APIRouter()

PAGE = 50


class HistorySearch(BaseModel):
    """What is searched for, as `EventFilter` has it; "" leaves it out."""

    name: Text = ""
    type: Text = ""
    trigger: Text = ""
    state: Text = ""
    by: Text = ""
    since: Text = ""
    until: Text = ""
    before: UUID | None = None


@router.get("/history")
async def search_history(request: Request, caller: Lister, asked: Annotated[HistorySearch, Query()]) -> Response:
    """A page of events, newest first."""
    said = {name: text.strip() for name, text in asked.model_dump(exclude={"before"}).items()}
    since, until = _instant("since", said["since"]), _instant("until", said["until"])
    names = {name: said[name] or None for name in ("name", "type", "trigger", "state", "by")}
    wanted = EventFilter(projects=caller.principal.projects, since=since, until=until, **names)

    def read() -> FoundEvents:
        with transaction(caller.access.runtime.database) as connection:
            return search(connection, wanted, before=asked.before, limit=PAGE)

    found, port = await inside(read), caller.access.runtime.settings.flower_port
    flower = f"http://127.0.0.1:{port}/tasks" if port else None
    return page(request, "history.html", found=found, said=said, look=LOOK, flower=flower)


def _instant(name: str, text: str) -> datetime | None:
    """An instant as browsers and people write it; without a time zone it is UTC."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError):  # OverflowError: in UTC it is of year 0 or 10,000
        raise BadInput(f"{name} must be an instant, such as 2026-11-26T08:00; got {text!r}") from None
