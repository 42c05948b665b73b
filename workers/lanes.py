"""Drain a lane: lower its flag, then apply what has gathered. In that order nothing can be missed.

Whoever saw the flag up had committed before it was lowered, so this look finds their trigger; whoever commits later
finds the flag down and sends a hint of their own. A trigger whose hint was sent ahead of its commit has no part in
this: the worker that does not find it looks for it a while, and a commit that takes longer is hinted at anew.
"""

from time import monotonic, sleep

from db import requests
from workers.engine import BATCH, Round
from workers.hints import LOOK_AGAIN_SECONDS, LOOK_SECONDS
from workers.runtime import Runtime

# A round that found this many, so short a while ago, says that triggers arrive faster than hints are worth sending:
# then let them gather. A commit for many costs little more than a commit for one, and a hint costs more than either.
CROWD = 3
CROWDED_SECONDS = 0.1
GATHER_SECONDS_EACH, GATHER_SECONDS_CAP = 0.005, 0.05
TURN_SECONDS = 1.0  # a lane that never runs dry lets the others have a turn


class Drain:
    """One process's draining of lanes. Under gentle load each trigger is applied at once, by its own task."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._ended, self._taken = 0.0, 0

    def lane(self, lane: int, *, early: str | None = None) -> int:
        """Apply what is due in a lane; how many requests that was.

        Args:
            lane: the lane.
            early: the request that is hinted at, where it may still be being committed. Such a hint has no flag.
        """
        if self._taken >= CROWD and monotonic() - self._ended < CROWDED_SECONDS:
            sleep(min(GATHER_SECONDS_CAP, self._taken * GATHER_SECONDS_EACH))
        if early is None:
            self._runtime.hints.lower(lane)
        done = self._apply(lane)
        if early and early not in done.requests and self._arrives(early):
            done += self._apply(lane)
        total, until = done.taken, monotonic() + TURN_SECONDS
        while (more := done.left or done.taken == BATCH) and monotonic() < until:
            done = self._apply(lane)
            total += done.taken
        if more:
            self._runtime.hints.again(lane)
        self._ended, self._taken = monotonic(), total
        return total

    def _arrives(self, request_id: str) -> bool:
        """Whether a request that was not there is now, and waits to be applied; looked for as long as may help."""
        until = monotonic() + LOOK_SECONDS
        while (status := requests.status(self._runtime.statements, request_id)) is None and monotonic() < until:
            sleep(LOOK_AGAIN_SECONDS)
        return status == "pending"

    def _apply(self, lane: int) -> Round:
        done = self._runtime.applier.apply_lane(lane)
        self._runtime.publish(done)
        return done
