"""The MCP server as the SDK serves it over streamable HTTP."""

import asyncio

from httpx2 import ASGITransport, AsyncClient
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import ASGIApp, Receive, Scope, Send

from interlock.api.mcp.door import ApiDoor
from interlock.api.mcp.server import make_server

# The API has checked the Host; and a token is no cookie, which somebody else's page could make use of.
CHECKED_BEFORE = TransportSecuritySettings(enable_dns_rebinding_protection=False)
BASE = "http://127.0.0.1"


class McpServed:
    """The SDK's application over the API of this process."""

    def __init__(self, api: ASGIApp) -> None:
        self._server = make_server(ApiDoor(AsyncClient(transport=ASGITransport(api), base_url=BASE)))
        self._app = self._server.streamable_http_app(
            streamable_http_path="/", json_response=True, stateless_http=True, transport_security=CHECKED_BEFORE
        )
        self._running: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, whose token was looked up."""
        if self._running is None or self._running.done():
            self._ready.clear()
            self._running = asyncio.create_task(self._run())
        await self._ready.wait()
        await self._app(scope, receive, send)

    async def _run(self) -> None:
        """What the SDK needs to run beside its requests, until the event loop ends."""
        async with self._server.session_manager.run():
            self._ready.set()
            await asyncio.Event().wait()
