"""Whose the tokens are that were looked up a moment ago.

Who fires a trigger has mostly fired another one just before: then PostgreSQL alone judges the token, as it accepts
(TOKEN-8).
"""

from collections import OrderedDict
from time import monotonic

from interlock.workers.access.tokens import Principal, digest_of

LATELY_SECONDS = 20.0  # and so often, its use can be noted (TOKEN-9)
MOST = 1_000  # tokens that are remembered


class Lately:
    """The tokens that were looked up lately: their terms never change. They may be in force no more."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, tuple[Principal, float]] = OrderedDict()  # by SHA-256; until when

    def note(self, token: str, principal: Principal) -> None:
        """Remember what was found."""
        key = digest_of(token)
        self._known[key] = (principal, monotonic() + LATELY_SECONDS)
        self._known.move_to_end(key)
        if len(self._known) > MOST:
            self._known.popitem(last=False)

    def of(self, token: str) -> Principal | None:
        """Whose it was; None if it was not found lately."""
        principal, until = self._known.get(digest_of(token), (None, 0.0))
        return principal if until > monotonic() else None
