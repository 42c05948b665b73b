"""Whose token an MCP request presents."""

from typing import Any

from interlock.api.mcp.door import ApiDoor

SCHEME = "Bearer "


def presented(header: str | None) -> str:
    """The token of an Authorization header; "" if it has none."""
    return header.removeprefix(SCHEME) if header and header.startswith(SCHEME) else ""


def token_of(ctx: Any, door: ApiDoor) -> str:
    """The token of the HTTP request that a tool, a resource or a method is asked by; over stdio, that of the server."""
    if door.token is not None:
        return door.token
    request = getattr(ctx, "request", None) or ctx.request_context.request
    return presented(request.headers.get("authorization"))
