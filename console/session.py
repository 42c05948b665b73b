"""Who looks at a page: the session of its cookie. A post must also come from one of our own pages (CONSOLE-4)."""

from typing import Annotated

from fastapi import Depends, Request

from interlock.api import session_cookie
from interlock.api.access import Caller, known
from interlock.workers.access.tokens import SESSION
from interlock.workflows.errors import NotYours


class SignedOut(Exception):
    """No session, or one that has ended: the answer is the way to the sign-in."""


def require_own_origin(request: Request) -> None:
    """Refuse what another site's page has a browser send. Raises `NotYours`."""
    if request.method not in session_cookie.SAFE and not session_cookie.own_origin(request):
        raise NotYours("This was sent from another site. Who may: a page of this console.")


async def visitor(request: Request) -> Caller:
    """Who looks at a page, and may do what the session's token may.

    Raises:
        SignedOut: there is no session.
        NotYours: it is a post from elsewhere.
    """
    require_own_origin(request)
    found = await known(request, session_cookie.of(request), SESSION)
    if found is None:
        raise SignedOut
    request.state.caller = found
    return found


Visitor = Annotated[Caller, Depends(visitor)]
