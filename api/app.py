"""The application: `create_app(runtime)`. Importing this opens nothing."""

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from starlette.middleware import Middleware

from interlock.api import problems
from interlock.api.access import Access
from interlock.api.bounds import Bounds
from interlock.api.groups import GROUPS, PREFIX, RouteGroup, include
from interlock.api.mcp import mount
from interlock.api.mcp.mount import McpMount
from interlock.api.problems import ProblemDetails
from interlock.api.routes.health import Readiness
from interlock.workers.client.async_client import AsyncRuntime

SUMMARY = "Durable state machines for software agents. The actor of each request is its token's."


class Api(FastAPI):
    """FastAPI, whose document describes problems too."""

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
        title="Interlock",
        summary=SUMMARY,
        version="1",
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,  # these pages load programs from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        middleware=[Middleware(Bounds, settings=runtime.settings)],
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.access = Access(runtime)
    app.state.readiness = Readiness(app.state.access)
    problems.install(app)
    for group in groups:
        include(app, group)
    app.mount(mount.PATH, McpMount(app))
    return app
