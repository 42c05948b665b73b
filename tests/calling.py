"""Call the API in process: the application over a runtime of its own, on an event loop that each call runs."""

import asyncio
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest
from httpx import ASGITransport, AsyncClient, Response
from sqlalchemy.util import greenlet_spawn

from interlock.api.app import Api, create_app
from interlock.api.groups import GROUPS, RouteGroup
from interlock.workers.client.async_client import AsyncRuntime
from interlock.workers.overrides.tokens import TokenTerms, issue
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from interlock.workflows.machines.governance.api_token import Role

BASE = "http://127.0.0.1:8080"


def token(runtime: Runtime, name: str, role: Role = "agent", projects: tuple[str, ...] | None = ("default",)) -> str:
    """A new token; `ann` issues it."""
    return issue(runtime, TokenTerms(name, role, projects), OverrideOrder("ann", "a test")).token


def bearing(token: str) -> dict[str, str]:
    """The header that presents a token."""
    return {"Authorization": f"Bearer {token}"}


def noted_sizes(monkeypatch: pytest.MonkeyPatch, module: ModuleType, function: str) -> list[int]:
    """Have a module note how many things each call of its function is of, also of one that fails; it is called on."""
    sizes: list[int] = []
    real = getattr(module, function)

    def noted(statements: Any, things: Collection[Any]) -> Any:
        sizes.append(len(things))
        return real(statements, things)

    monkeypatch.setattr(module, function, noted)
    return sizes


class Calls:
    """Calls of an application, one after the other."""

    def __init__(self, app: Api, client: AsyncClient, loop: asyncio.Runner) -> None:
        self.app, self.client, self.loop = app, client, loop
        self.token = ""

    def __call__(self, method: str, path: str, *, token: str | None = None, **said: Any) -> Response:
        """Send a request with a token; default: that of `self.token`."""
        headers = bearing(self.token if token is None else token) | said.pop("headers", {})
        return self.loop.run(self.client.request(method, path, headers=headers, **said))


@contextmanager
def calls(settings: Settings, groups: Sequence[RouteGroup] = GROUPS) -> Iterator[Calls]:
    """The application over these settings, with these routes."""
    runtime = AsyncRuntime(settings)
    with asyncio.Runner() as loop:
        app = create_app(runtime, groups)
        client = AsyncClient(transport=ASGITransport(app, raise_app_exceptions=False), base_url=BASE)
        try:
            yield Calls(app, client, loop)
        finally:
            loop.run(client.aclose())
            loop.run(greenlet_spawn(runtime.close))
