"""Signing in by the link that `interlock open` prints, and out."""

from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Depends, Form, Request
from starlette.responses import RedirectResponse, Response

from interlock.api import session_cookie
from interlock.api.inside import inside
from interlock.console.rendering import page
from interlock.console.session import Visitor, require_own_origin
from interlock.workers.overrides.console_sessions import SESSION_LIFE, end_session, open_session
from interlock.workflows.errors import NotYours

router = APIRouter()

REFUSED = "This link has been used or has expired. Each opens one session, within five minutes."


@router.get("/sign-in")
async def ask(request: Request) -> Response:
    """The page that the link opens; its secret is behind the `#`, which no browser sends."""
    return page(request, "sign_in.html", refused="")


@router.post("/sign-in", dependencies=[Depends(require_own_origin)])
async def sign_in(request: Request, link: Annotated[str, Form(max_length=500)]) -> Response:
    """Use a link: once, for a session."""
    secret = link.strip().rpartition("#")[2]
    session = await inside(open_session, request.app.state.access.runtime, secret)
    if session is None:
        return page(request, "sign_in.html", status=401, refused=REFUSED)
    answer = RedirectResponse("/", 303)
    session_cookie.give(request, answer, session.token, int(SESSION_LIFE.total_seconds()))
    return answer


@router.post("/sign-out")
async def sign_out(request: Request, caller: Visitor) -> Response:
    """Revoke the session, and have the browser forget it in any case."""
    with suppress(NotYours):
        await inside(end_session, caller.access.runtime, caller.principal)
    answer = RedirectResponse("/sign-in", 303)
    session_cookie.take(request, answer)
    return answer
