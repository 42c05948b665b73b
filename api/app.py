"""The application: `create_app(runtime)`. Importing this opens nothing."""

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from interlock.api import problems
from interlock.api.access import Access
from interlock.api.bounds import Bounds
from interlock.api.direct import Direct
from interlock.api.groups import GROUPS, PREFIX, RouteGroup
from interlock.api.mcp import mount
from interlock.api.mcp.mount import McpMount
from interlock.api.problems import ProblemDetails
from interlock.api.routes import triggers
from interlock.workers.client.async_client import AsyncRuntime

SUMMARY = "Durable state machines for software agents. The actor of each request is its token's."


class Api(FastAPI):
    """FastAPI within bounds, whose document describes problems too."""

    def __init__(self, runtime: AsyncRuntime, groups: Sequence[RouteGroup], **settings: Any) -> None:
        super().__init__(**settings)
        self.state.access = Access(runtime)
        inner: ASGIApp = super().__call__
        if group := next((each for each in groups if each.router is triggers.router), None):
            inner = Direct(inner, group)
        self._outer = Bounds(inner, runtime.settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        scope["app"] = self
        await self._outer(scope, receive, send)

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI 3.1 document."""
        document = super().openapi()
        document["components"].setdefault("schemas", {})["ProblemDetails"] = ProblemDetails.model_json_schema()
        return document


def create_app(runtime: AsyncRuntime, groups: Sequence[RouteGroup] = GROUPS) -> Api:
    """The API over a runtime, which stays its caller's to close.

    Args:
        runtime: for one event loop.
        groups: the routes.
    """
    app = Api(
        runtime,
        groups,
        title="Interlock",
        summary=SUMMARY,
        version="1",
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,  # these pages load programs from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    problems.install(app)
    for group in groups:
        app.router.routes.extend(group.routes)
    app.mount(mount.PATH, McpMount(app))
    return app
