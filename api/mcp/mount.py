"""MCP over streamable HTTP, at `/mcp` of the API: a request without a valid token gets no further than its header.

The SDK is loaded when the first request comes with a token: most installations never hear one, and it takes as long as
the rest of the API, and 18 MB.
"""

import asyncio
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from interlock.api.access import bearer, caller
from interlock.api.mcp.bearer import note
from interlock.api.presented import Presented

if TYPE_CHECKING:
    from interlock.api.mcp.served import McpServed

PATH = "/mcp"


class McpMount:
    """The ASGI application of `/mcp`, which calls the API in the same process."""

    def __init__(self, api: ASGIApp) -> None:
        self._api = api
        self._served: McpServed | None = None
        self._loading = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["method"] != "POST":  # a stream would be open for ever, and nothing is ever sent on it
            raise HTTPException(405, headers={"Allow": "POST"})
        request = Request(scope)
        given = await bearer(request)
        who = await caller(request, given)
        note(scope, Presented(given.credentials if given else "", who.principal))
        served = self._served or await self._loaded()
        await served(scope, receive, send)

    async def _loaded(self) -> "McpServed":
        async with self._loading:  # in a thread: others are answered meanwhile
            if self._served is None:
                self._served = await asyncio.to_thread(self._load)
            return self._served

    def _load(self) -> "McpServed":
        from interlock.api.mcp.served import McpServed  # noqa: PLC0415 - see above

        return McpServed(self._api)
