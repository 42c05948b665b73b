"""Calls the HTTP API for MCP: in the same process, or over the network for `interlock mcp serve`.

What it answers becomes a tool's result. A problem (RFC 9457) becomes a result that says `isError`, with the problem's
members: why it is refused, which triggers are legal, who may.
"""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from httpx2 import AsyncClient, Response
from mcp.types import CallToolResult, TextContent

from interlock.api.presented import KNOWN, Presented

SLACK_SECONDS = 30.0  # that a call may take longer than it waits


class ApiDoor:
    """The way to the API.

    Attributes:
        token: whose token calls present; None: that of the request that a call is made for.
    """

    def __init__(self, client: AsyncClient, token: str | None = None) -> None:
        self._client, self.token = client, token

    async def ask(self, who: Presented, method: str, path: str, **said: Any) -> Response:
        """Send one request; see `httpx2.AsyncClient.request`."""
        waits = float((said.get("params") or {}).get("wait") or 0.0)
        headers = {"Authorization": f"Bearer {who.token}"}
        known = KNOWN.set(who)
        try:
            return await self._client.request(method, path, headers=headers, timeout=SLACK_SECONDS + waits, **said)
        finally:
            KNOWN.reset(known)


def given(**values: Any) -> dict[str, Any]:
    """The values that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def at(path: str, ref: str) -> str:
    """A path of the API that ends with a reference, which may be `TYPE/ENTITY_ID` and leads to nothing above it."""
    parts = (part.replace(".", "%2E") if part in (".", "..") else quote(part, safe="") for part in ref.split("/"))
    return f"{path}/{'/'.join(parts)}"


def answered(answer: Response) -> CallToolResult:
    """What a tool returns for an answer of the API."""
    said: Any = {} if answer.status_code == 204 else answer.json()
    return of(said, failed=answer.status_code >= 400)


def of(said: Mapping[str, Any], *, failed: bool = False) -> CallToolResult:
    """A tool's result: structured, and the same as text for models that read only that."""
    text = TextContent(type="text", text=json.dumps(said, ensure_ascii=False))
    return CallToolResult(content=[text], structured_content=dict(said), is_error=failed)
