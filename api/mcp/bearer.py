"""Whose token an MCP request presents."""

from typing import TYPE_CHECKING, Any

from starlette.types import Scope

from interlock.api.presented import Presented

if TYPE_CHECKING:
    from interlock.api.mcp.door import ApiDoor

STATE = "mcp_principal"


def note(scope: Scope, who: Presented) -> None:
    """Keep with an HTTP request whose token it presents, so that its calls of the API need not look that up."""
    scope.setdefault("state", {})[STATE] = who


def token_of(ctx: Any, door: "ApiDoor") -> Presented:
    """The token of the HTTP request that a tool, a resource or a method is asked by; over stdio, that of the server."""
    if door.token is not None:
        return Presented(door.token)
    request = getattr(ctx, "request", None) or ctx.request_context.request
    found: Presented = request.scope["state"][STATE]
    return found
