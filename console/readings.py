"""The installation's metrics for those who look: read once for all of them, at most every two seconds."""

import asyncio
from collections.abc import Mapping
from time import monotonic

from interlock.api.inside import inside
from interlock.db.core.counters import Series
from interlock.workers.operations import metrics
from interlock.workers.runtime import Runtime

KEPT_SECONDS = 2.0


class Readings:
    """The newest reading of `operations.metrics`."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime, self._reading = runtime, asyncio.Lock()
        self._found: Mapping[Series, float] = {}
        self._until = 0.0

    async def now(self) -> Mapping[Series, float]:
        """Each series' value, two seconds old at most."""
        async with self._reading:
            if monotonic() >= self._until:
                self._found = await inside(metrics.read, self._runtime)
                self._until = monotonic() + KEPT_SECONDS
        return self._found
