"""Gets a stalled partition moving, whatever one of its requests does to the process that applies it.

If a request ends its process (a crash in C, the kernel's out-of-memory killer, a hang), nothing is written, so its
attempts are not counted. A stalled partition is therefore applied under marks, each committed before the work that it
marks. First, a normal round is tried. If such a round did not end, requests are applied one by one. A request that was
begun `MOST_STRIKES` times and never settled is quarantined.
"""

from time import monotonic

import structlog

from interlock.db.connection import transaction, try_lock
from interlock.db.core import requests, stalled_partitions
from interlock.workers.runtime import Runtime

log = structlog.get_logger()

MOST_STRIKES = 3  # processes that a request may end when it is applied alone
TURN_SECONDS = 5.0  # per call
REASON = f"the process that applied it ended {MOST_STRIKES} times without a word"


def rescue(runtime: Runtime, partition: int) -> None:
    """Apply what is due in a stalled partition.

    Raises:
        DBAPIError: the infrastructure failed; the next call continues.
    """
    with transaction(runtime.database) as held:
        if not try_lock(held, stalled_partitions.RESCUE_LOCK, partition):
            return
        with transaction(runtime.database) as marking:
            rounds = stalled_partitions.begin(marking, partition)
        if rounds is None:
            return
        if rounds > 1:
            log.warning("partition_stuck", partition=partition, consequence="its requests are applied one by one")
            _one_by_one(runtime, partition)
            return
        runtime.publish(runtime.applier.apply_partition(partition))
        with transaction(runtime.database) as marking:
            stalled_partitions.end(marking, partition)


def _one_by_one(runtime: Runtime, partition: int) -> None:
    after, until = 0, monotonic() + TURN_SECONDS
    while monotonic() < until:
        with transaction(runtime.database) as connection:
            request = stalled_partitions.following(connection, partition, after)
            if request is None:
                break
            after = int(request["seq"])
            strikes = stalled_partitions.suspect(connection, partition, after)
            if strikes > MOST_STRIKES:
                requests.quarantine(connection, [request["request_id"]], by="system", reason=REASON)
                log.error("request_quarantined", partition=partition, request_id=request["request_id"], reason=REASON)
                continue
        runtime.publish(runtime.applier.apply_first(request["workflow_id"]))
    with transaction(runtime.database) as connection:
        stalled_partitions.clear(connection, partition)
