"""The token that a request presents, and whose it is, where that was looked up already.

An MCP request makes several calls of the API in the same process: its token is looked up once for all of them.
"""

from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # MCP over stdio looks nothing up
    from interlock.workers.access.tokens import Principal


class Presented(NamedTuple):
    """A token, and its principal; None: not looked up."""

    token: str
    principal: "Principal | None" = None


KNOWN: ContextVar[Presented | None] = ContextVar("known", default=None)  # of the call that is being made
