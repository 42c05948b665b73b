"""How many requests a token may send: a token bucket for each, in bounded memory."""

from collections import OrderedDict
from time import monotonic
from uuid import UUID

from interlock.workflows.errors import InterlockError

BURST_SECONDS = 2.0  # a token that was idle may send as many requests at once as in this time
REMEMBERED = 10_000  # tokens; the one that is longest idle is forgotten first, and begins with a full bucket


class TooManyRequests(InterlockError):
    """A token sends requests faster than INTERLOCK_API_RATE allows. Wait for the time in `Retry-After`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"Wait {seconds:.2f} s.")
        self.seconds = seconds


class Rates:
    """The buckets of one process."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._most = max(1.0, per_second * BURST_SECONDS)
        self._left: OrderedDict[UUID, tuple[float, float]] = OrderedDict()  # requests left, and when that was

    def wait_seconds(self, token_id: UUID) -> float:
        """Take one request from a token's bucket.

        Returns:
            0 if it may be sent; else the seconds after which there is room for one, and nothing is taken.
        """
        if not self._per_second:
            return 0.0
        now = monotonic()
        left, since = self._left.pop(token_id, (self._most, now))
        left = min(self._most, left + (now - since) * self._per_second)
        self._left[token_id] = (left - (left >= 1), now)
        if len(self._left) > REMEMBERED:
            self._left.popitem(last=False)
        return 0.0 if left >= 1 else (1 - left) / self._per_second
