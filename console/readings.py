"""What is read once for all who look, at most every two seconds."""

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Generic, TypeVar

from interlock.api.inside import inside

T = TypeVar("T")
KEPT_SECONDS = 2.0


class Readings(Generic[T]):
    """The newest reading of a function, which is called in a greenlet."""

    def __init__(self, read: Callable[[], T]) -> None:
        self._read, self._reading = read, asyncio.Lock()
        self._found: T | None = None
        self._until = 0.0

    async def now(self) -> T:
        """What it read, two seconds ago at most."""
        async with self._reading:
            if self._found is None or monotonic() >= self._until:
                self._found = await inside(self._read)
                self._until = monotonic() + KEPT_SECONDS
            return self._found
