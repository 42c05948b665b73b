"""Drain a lane: lower its flag, then apply what has gathered. In that order nothing can be missed.

Whoever saw the flag up had committed before it was lowered, so this look finds their trigger; whoever commits later
finds the flag down and sends a hint of their own.
"""

from time import monotonic, sleep

from workers.engine import BATCH
from workers.runtime import Runtime

BUSY_SECONDS = 0.005  # hints that follow each other this closely say that more triggers are on their way
GATHER_SECONDS = 0.008  # then let them gather: a commit for many costs little more than a commit for one
TURN_SECONDS = 1.0  # a lane that never runs dry lets the others have a turn


class Drain:
    """One process's draining of lanes. Under gentle load each trigger is applied at once, by its own task."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._ended = 0.0

    def lane(self, lane: int) -> int:
        """Apply what is due in a lane; how many requests that was."""
        if monotonic() - self._ended < BUSY_SECONDS:
            sleep(GATHER_SECONDS)
        self._runtime.hints.lower(lane)
        total = taken = self._apply(lane)
        until = monotonic() + TURN_SECONDS
        while taken == BATCH and monotonic() < until:
            taken = self._apply(lane)
            total += taken
        if taken == BATCH:
            self._runtime.hints.again(lane)
        self._ended = monotonic()
        return total

    def _apply(self, lane: int) -> int:
        done = self._runtime.applier.apply_lane(lane)
        self._runtime.publish(done)
        return done.taken
