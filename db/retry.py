"""Runs a unit of work again after a fault of the infrastructure, with one policy for all.

Most faults get a second attempt: after a restart of PostgreSQL, pooled connections fail when they are first used.
Collisions (deadlocks, serialization failures) get ten: PostgreSQL cancels one of several callers at a time. Work whose
result must not be lost sets `patience_seconds`, and is attempted at least until then.

Before each further attempt it waits for a random part ("full jitter") of 50, 100, 200, 400, 800 ms, then always 1 s.
Celery's messages are retried by Celery (`workers/tasks.py`), trigger requests and effects by their rows. What looks
again anyway (`run watch`, the renewal of a lease) takes its next look instead.
"""

from collections.abc import Callable
from itertools import count
from random import random
from time import monotonic, sleep
from typing import TypeVar

from sqlalchemy.exc import DBAPIError

from interlock.db.connection import collided, retryable
from interlock.workflows.backoff import full_jitter

T = TypeVar("T")

FAULTS, COLLISIONS = 2, 10  # attempts
BASE_SECONDS, CAP_SECONDS = 0.05, 1.0


def retried(
    work: Callable[[DBAPIError | None], T],
    *,
    patience_seconds: float = 0.0,
    pause: Callable[[float], None] = sleep,
    after: Callable[[BaseException], bool] = retryable,
) -> T:
    """Run `work` until it meets no fault of the infrastructure; returns what it returns.

    Args:
        work: called with the fault that ended the attempt before, or None. It must be safe to repeat.
        patience_seconds: how long to go on, even if its attempts are used up.
        pause: how to wait between two attempts.
        after: the faults after which it is safe to repeat.

    Raises:
        DBAPIError: the last fault, or one that a further attempt would meet again.
    """
    before, until = None, monotonic() + patience_seconds
    for attempt in count(1):
        try:
            return work(before)
        except DBAPIError as fault:
            used_up = attempt >= (COLLISIONS if collided(fault) else FAULTS)
            if not after(fault) or (used_up and monotonic() >= until):
                raise
            before = fault
        chance = random()  # noqa: S311 - jitter, not a secret
        pause(full_jitter(attempt, base_seconds=BASE_SECONDS, cap_seconds=CAP_SECONDS, chance=chance))
    raise AssertionError("the loop returns or raises")
