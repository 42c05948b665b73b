"""Drains a partition: first clears its wake-up flag, then applies what is due. In that order no trigger is missed.

A producer that finds the flag set has already committed, so the query after the clearing finds its trigger. A producer
that commits later finds the flag cleared, and sends a wake-up of its own. A head-start wake-up, sent before its
trigger's commit, does not use the flag: the worker looks for that trigger for up to 20 ms, and a producer whose commit
takes more than 10 ms sends a second wake-up.
"""

from time import monotonic, sleep
from uuid import UUID

from sqlalchemy import RowMapping

from interlock.db.connection import transaction
from interlock.db.core import requests
from interlock.db.core.rounds import BATCH
from interlock.workers.broker.wakeups import LOOK_AGAIN_SECONDS, LOOK_SECONDS
from interlock.workers.client.receipts import SETTLED, NotSettled
from interlock.workers.engine.applier import Round
from interlock.workers.runtime import Runtime

# If the last round found this many requests a moment ago, triggers arrive faster than wake-ups are worth sending:
# pause to let them gather. A commit of many costs little more than a commit of one, and less than a wake-up.
CROWD = 3
CROWDED_SECONDS = 0.1
GATHER_SECONDS_EACH, GATHER_SECONDS_CAP = 0.005, 0.05
PATIENCE_SECONDS, PAUSE_SECONDS = 30.0, 0.05  # of `settle`
TURN_SECONDS = 1.0  # after this long in a partition that never runs dry, the others get a turn


class Drain:
    """Drains partitions for one process. Under light load each trigger is applied at once, by its own Celery task."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._ended, self._taken = 0.0, 0

    def partition(self, partition: int, *, early: str | None = None) -> Round:
        """Apply the due requests of a partition.

        Args:
            partition: the partition's number.
            early: for a head-start wake-up, the request it was sent for, which may not be committed yet.

        Returns:
            What was done; `taken` is the number of requests.
        """
        if self._taken >= CROWD and monotonic() - self._ended < CROWDED_SECONDS:
            sleep(min(GATHER_SECONDS_CAP, self._taken * GATHER_SECONDS_EACH))
        if early is None:
            self._runtime.wakeups.lower(partition)
        done = self._apply(partition)
        if early and early not in done.requests and self._arrives(early):
            done += self._apply(partition)
        whole, until = done, monotonic() + TURN_SECONDS
        while (more := done.left or done.taken == BATCH) and monotonic() < until:
            done = self._apply(partition)
            whole += done
        if more:
            self._runtime.wakeups.again(partition)
        self._ended, self._taken = monotonic(), whole.taken
        return whole

    def _arrives(self, request_id: str) -> bool:
        """Wait up to `LOOK_SECONDS` for a request that was not committed yet; whether it is there and pending."""
        until = monotonic() + LOOK_SECONDS
        while (status := requests.status(self._runtime.statements, request_id)) is None and monotonic() < until:
            sleep(LOOK_AGAIN_SECONDS)
        return status == "pending"

    def _apply(self, partition: int) -> Round:
        done = self._runtime.applier.apply_partition(partition)
        self._runtime.publish(done)
        return done


def settle(runtime: Runtime, request_id: str, instance_id: UUID) -> RowMapping:
    """Apply an accepted trigger, and whatever is due before it, in this process, without waiting for a worker.

    Returns:
        The request's row, with its outcome.

    Raises:
        NotSettled: it is in retry and was not applied within 30 s. It will be applied later.
    """
    until = monotonic() + PATIENCE_SECONDS
    while True:
        Drain(runtime).partition(requests.partition_of(instance_id))
        with transaction(runtime.database) as connection:
            found = requests.by_ids(connection, [request_id])[request_id]
        if found["status"] in SETTLED:
            return found
        if monotonic() > until:
            raise NotSettled(
                f"{request_id} was not applied within {PATIENCE_SECONDS:g} s: {found['error'] or found['status']}"
            )
        sleep(PAUSE_SECONDS)
