"""Drain a lane: apply what has gathered, and leave only when nothing can be missed."""

from time import monotonic

from workers.engine import BATCH
from workers.runtime import Runtime

GATHERING = 8  # a round this full says that more is coming: look again before leaving
TURN_SECONDS = 0.5  # then another lane gets its turn


def drain(runtime: Runtime, lane: int) -> int:
    """Apply a lane's triggers until it is quiet or the turn is over; how many.

    The flag stays up while rounds are full, so that triggers arriving meanwhile send no hints of their own. It is
    lowered before the last look: whatever commits after that sends its own.
    """
    until = monotonic() + TURN_SECONDS
    taken = total = _apply(runtime, lane)
    while taken >= GATHERING and monotonic() < until:
        taken = _apply(runtime, lane)
        total += taken
    runtime.hints.lower(lane)
    last = _apply(runtime, lane)
    if last == BATCH:
        runtime.hints.again(lane)
    return total + last


def _apply(runtime: Runtime, lane: int) -> int:
    done = runtime.applier.apply_lane(lane)
    runtime.publish(done)
    return done.taken
