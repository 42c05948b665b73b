"""Whose token an MCP request presents."""

from typing import Any

from fastapi.security.utils import get_authorization_scheme_param

from interlock.api.mcp.door import ApiDoor


def presented(header: str | None) -> str:
    """The token of an Authorization header; "" if it has none."""
    scheme, credentials = get_authorization_scheme_param(header)
    return credentials if scheme.lower() == "bearer" else ""


def token_of(ctx: Any, door: ApiDoor) -> str:
    """The token of the HTTP request that a tool, a resource or a method is asked by; over stdio, that of the server."""
    if door.token is not None:
        return door.token
    request = getattr(ctx, "request", None) or ctx.request_context.request
    return presented(request.headers.get("authorization"))
