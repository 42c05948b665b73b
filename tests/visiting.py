"""Visit the console in process: sessions over the site, as a browser would have them, without one."""

import asyncio
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from httpx import ASGITransport, AsyncClient, Response
from sqlalchemy.util import greenlet_spawn

from interlock.console.site import Site, create_site
from interlock.workers.client.async_client import AsyncRuntime
from interlock.workers.overrides.console_sessions import make_link
from interlock.workers.overrides.tokens import TokenTerms
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from interlock.workflows.machines.governance.api_token import Role
from tests.calling import BASE

T = TypeVar("T")
OURS = {"Sec-Fetch-Site": "same-origin", "Origin": BASE}


def link(runtime: Runtime, name: str, role: Role = "agent", projects: tuple[str, ...] | None = ("default",)) -> str:
    """The secret of a new link; `ann` issues it."""
    return make_link(runtime, TokenTerms(name, role, projects), OverrideOrder("ann", "a test")).token


class Visitor:
    """Somebody with a browser, who may be signed in."""

    def __init__(self, site: Site, loop: asyncio.Runner) -> None:
        self.client, self._loop = AsyncClient(transport=ASGITransport(site), base_url=BASE), loop

    def get(self, path: str, **said: Any) -> Response:
        """A page."""
        return self._loop.run(self.client.get(path, **said))

    def post(self, path: str, **said: Any) -> Response:
        """What a form of our own pages sends."""
        return self.send("POST", path, OURS | said.pop("headers", {}), **said)

    def send(self, method: str, path: str, headers: Mapping[str, str], **said: Any) -> Response:
        """Any request, with nothing but these headers and the visitor's cookies."""
        return self._loop.run(self.client.request(method, path, headers=headers, **said))

    def sign_in(self, secret: str) -> "Visitor":
        """Use a link."""
        answer = self.post("/sign-in", data={"link": secret})
        assert answer.status_code == 303, answer.text
        return self


class Visits:
    """The site, and whoever visits it."""

    def __init__(self, site: Site, loop: asyncio.Runner, issuing: Runtime) -> None:
        self.site, self._loop, self._issuing = site, loop, issuing
        self._visitors: list[Visitor] = []

    def anybody(self) -> Visitor:
        """A visitor who is not signed in."""
        self._visitors.append(Visitor(self.site, self._loop))
        return self._visitors[-1]

    def by(self, name: str, role: Role = "agent", projects: tuple[str, ...] | None = ("default",)) -> Visitor:
        """A visitor with a session in a name."""
        return self.anybody().sign_in(link(self._issuing, name, role, projects))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What several visitors do at once."""
        return self._loop.run(work)

    def close(self) -> None:
        """End all visits."""
        for each in self._visitors:
            self._loop.run(each.client.aclose())


@contextmanager
def visits(settings: Settings, issuing: Runtime) -> Iterator[Visits]:
    """The site over these settings; `issuing` issues the links."""
    runtime = AsyncRuntime(settings)
    with asyncio.Runner() as loop:
        made = Visits(create_site(runtime), loop, issuing)
        try:
            yield made
        finally:
            made.close()
            loop.run(greenlet_spawn(runtime.close))
