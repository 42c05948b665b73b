"""MCP over streamable HTTP, at `/mcp` of the API: a request without a valid token gets no further than its header."""

import asyncio

from httpx2 import ASGITransport, AsyncClient
from mcp.server.transport_security import TransportSecuritySettings
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from interlock.api.access import bearer, caller
from interlock.api.mcp.bearer import note
from interlock.api.mcp.door import ApiDoor
from interlock.api.mcp.server import make_server
from interlock.api.presented import Presented

PATH = "/mcp"
# The API has checked the Host; and a token is no cookie, which somebody else's page could make use of.
CHECKED_BEFORE = TransportSecuritySettings(enable_dns_rebinding_protection=False)


class McpMount:
    """The ASGI application of `/mcp`, which calls the API in the same process."""

    def __init__(self, api: ASGIApp, base_url: str = "http://127.0.0.1") -> None:
        self._door = ApiDoor(AsyncClient(transport=ASGITransport(api), base_url=base_url))
        self._server = make_server(self._door)
        self._app = self._server.streamable_http_app(
            streamable_http_path="/", json_response=True, stateless_http=True, transport_security=CHECKED_BEFORE
        )
        self._running: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["method"] != "POST":  # a stream would be open for ever, and nothing is ever sent on it
            raise HTTPException(405, headers={"Allow": "POST"})
        request = Request(scope)
        given = await bearer(request)
        who = await caller(request, given)
        note(scope, Presented(given.credentials if given else "", who.principal))
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
