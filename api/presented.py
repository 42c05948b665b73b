"""The token that a request presents, and whose it is, where that was looked up already.

An MCP request makes several calls of the API in the same process: its token is looked up once for all of them. And who
fires a trigger was mostly looked up a moment ago: then PostgreSQL alone judges the token, as it accepts (TOKEN-8).
"""

from collections import OrderedDict
from contextvars import ContextVar
from hashlib import sha256
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # MCP over stdio looks nothing up
    from interlock.workers.access.tokens import Principal


class Presented(NamedTuple):
    """A token, and its principal; None: not looked up."""

    token: str
    principal: "Principal | None" = None


KNOWN: ContextVar[Presented | None] = ContextVar("known", default=None)  # of the call that is being made


LATELY_SECONDS = 20.0  # and so often, its use can be noted (TOKEN-9)
MOST = 1_000  # tokens that are remembered


class Lately:
    """Whose the tokens are that were looked up lately: their terms never change. They may be in force no more."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, tuple[Principal, float]] = OrderedDict()  # by SHA-256; until when

    def note(self, token: str, principal: "Principal") -> None:
        """Remember what was found."""
        key = _key(token)
        self._known[key] = (principal, monotonic() + LATELY_SECONDS)
        self._known.move_to_end(key)
        if len(self._known) > MOST:
            self._known.popitem(last=False)

    def of(self, token: str) -> "Principal | None":
        """Whose it was; None if it was not found lately."""
        principal, until = self._known.get(_key(token), (None, 0.0))
        return principal if until > monotonic() else None


def _key(token: str) -> bytes:
    return sha256(token.encode()).digest()
