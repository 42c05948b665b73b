"""Who looks at a page: the session of its cookie. A post must also come from one of our own pages (CONSOLE-4).

The address of a page may name one of the session's projects, `?project=` (CONSOLE-9): lists then show that one only.
"""

from dataclasses import replace
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
        NotYours: it is a post from elsewhere, or the chosen project is not of the session.
        BadInput: what is chosen is no name of a project.
    """
    require_own_origin(request)
    found = await known(request, session_cookie.of(request), SESSION)
    if found is None:
        raise SignedOut
    request.state.caller = found
    if request.method == "GET":
        covered = found.principal.projects
        request.state.projects = await request.app.state.projects.now() if covered is None else sorted(covered)
        named = request.query_params.get("project")
        request.state.chosen = found.project(named) if named else None
    return found


Visitor = Annotated[Caller, Depends(visitor)]


async def lister(request: Request, caller: Visitor) -> Caller:
    """The visitor, as if the session were for the chosen project only. Raises as `visitor`."""
    request.state.narrows = True
    projects = caller.projects(request.state.chosen)
    return replace(caller, principal=replace(caller.principal, projects=projects))


Lister = Annotated[Caller, Depends(lister)]
