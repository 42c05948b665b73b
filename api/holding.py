"""How many requests of one token may wait at once, so that no token alone holds the connections of all others."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from interlock.api.rates import TooManyRequests
from interlock.workflows.errors import InterlockError

MOST_OF_A_TOKEN = 400  # that wait, and as many event streams; a process has 1,000 connections
AGAIN_SECONDS = 5


class TooManyHeld(TooManyRequests):
    """The token has as many requests waiting, or event streams open, as it may. Close some, or wait."""

    def __init__(self, what: str) -> None:
        InterlockError.__init__(self, f"This token has {MOST_OF_A_TOKEN} {what}, the most. Close some, or come again.")
        self.seconds = AGAIN_SECONDS


class HeldRequests:
    """The requests of one process that wait for something, by token."""

    def __init__(self) -> None:
        self._held: Counter[UUID] = Counter()

    def full(self, token_id: UUID) -> bool:
        """Whether a token may have no more requests wait."""
        return self._held[token_id] >= MOST_OF_A_TOKEN

    @contextmanager
    def held(self, token_id: UUID) -> Iterator[None]:
        """For the duration of a block, a request of this token waits. Raises `TooManyHeld` if too many do."""
        if self.full(token_id):
            raise TooManyHeld("requests that wait")
        self._held[token_id] += 1
        try:
            yield
        finally:
            self._held[token_id] -= 1
            if not self._held[token_id]:
                del self._held[token_id]
