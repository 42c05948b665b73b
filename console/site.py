"""What the process of the API serves: the API and MCP under their paths, the console everywhere else."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interlock.api.app import Api
    from interlock.api.server import Asgi
    from interlock.workers.client.async_client import AsyncRuntime

API_PATHS = ("/api", "/mcp")


class Site:
    """Gives each request to the API or the console."""

    def __init__(self, api: "Api", console: "Asgi") -> None:
        self.api, self.console = api, console

    async def stop(self) -> None:
        """End the streams of events."""
        await self.api.state.access.feed.stop()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        path = scope.get("path", "")
        within = any(path == each or path.startswith(f"{each}/") for each in API_PATHS)
        await (self.api if within else self.console)(scope, receive, send)


def create_site(runtime: "AsyncRuntime") -> Site:
    """The API and the console over one runtime, which stays its caller's to close."""
    from interlock.api.app import create_app  # noqa: PLC0415 - with the first request: see `api.server`
    from interlock.console.app import create_console  # noqa: PLC0415 - likewise

    api = create_app(runtime)
    return Site(api, create_console(api.state.access))
