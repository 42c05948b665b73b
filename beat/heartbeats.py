"""Silent workers: a worker whose heartbeats stopped gets a trigger, and its tasks are given back."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, RowMapping

from interlock.db.core import request_rows, requests
from interlock.db.fast_path import Row
from interlock.db.orchestration import claim_triggers, claims, jobs, workers

SILENT_BATCH = 500
GONE = "max_timeout_exceeded"
ENDS = (GONE, "worker_crashed")  # the triggers that end a silent worker: of a `worker`, of a `uet_worker`

Wakeups = Sequence[Mapping[str, Any]]


def heartbeats(connection: Connection, *, silent_seconds: float, gone_seconds: float) -> tuple[int, Wakeups]:
    """Process a batch of workers whose heartbeats stopped; returns their number, and wake-ups for the fired triggers.

    A worker that has ended and still holds claims loses its tasks, too (WORKER-12). A silent supervised worker fails
    (SUPERVISED-9).

    Args:
        connection: the sweep's transaction.
        silent_seconds: how long a worker that holds a claim may be silent (WORKER-7: two heartbeats), a running
            supervised worker, and a `uet_worker` in any state (UET-2), which then counts as crashed.
        gone_seconds: the silence after which an unresponsive, idle or suspended worker is shut down.
    """
    found = workers.silent(connection, silent_seconds=silent_seconds, gone_seconds=gone_seconds, limit=SILENT_BATCH)
    supervised = jobs.silent(connection, silent_seconds=silent_seconds, limit=SILENT_BATCH)
    silent, ended = [row for row in found if not row["ended"]], [row for row in found if row["ended"]]
    fired = [
        *release_tasks(connection, [*silent, *supervised], "fell silent"),
        *release_tasks(connection, ended, "has ended"),
    ]
    return len(found) + len(supervised), fired


def release_tasks(
    connection: Connection, lost: Sequence[RowMapping], message: str, *, certain: bool = False
) -> Wakeups:
    """Give back the workers' tasks, and fire each worker's triggers; afterwards they hold no claim.

    Args:
        connection: the caller's transaction.
        lost: worker_id, name, version, draining, and `owed`, the trigger to fire if there is one, of each.
        message: what happened to them, phrased to follow `worker NAME …`.
        certain: the workers are known to be gone, so they get no time to recover.
    """
    if not lost:
        return []
    names = {row["worker_id"]: f"worker {row['name']} {message}" for row in lost}
    owed = {row["worker_id"]: _owed(row, certain) for row in lost}
    rows: list[Mapping[str, Any]] = []
    for claim in claims.take_away(connection, names):
        rows += claim_triggers.task_returned(claim, names[claim["worker_id"]])
        if not owed[claim["worker_id"]]:
            rows += claim_triggers.freed(claim)
    for row in lost:
        for version, trigger in enumerate(owed[row["worker_id"]], row["version"]):
            rows.append(_request(row["worker_id"], row["version"], version, trigger, names[row["worker_id"]]))
    return wakeups_of(requests.accept(connection, rows))


def _request(worker_id: UUID, seen: int, version: int, trigger: str, reason: str) -> dict[str, Any]:
    request_id = request_rows.own_id(worker_id, version, trigger)
    metadata = {"reason": reason}
    return request_rows.internal(
        request_id,
        worker_id,
        trigger,
        by="heartbeats",
        right=request_rows.by_state(seen),
        version=version,
        metadata=metadata,
    )


def _owed(row: RowMapping, certain: bool) -> list[str]:
    # A draining worker has nothing left to finish.
    ends = (certain or row["draining"]) and row["owed"] not in ENDS
    return [*filter(None, [row["owed"]]), *[GONE] * ends]


def wakeups_of(accepted: Mapping[str, Row]) -> Wakeups:
    """The wake-ups for accepted requests."""
    return [
        dict(row) | {"workflow_type": "crew", "entity_id": str(row["workflow_id"]), "triggered_by": "crew"}
        for row in accepted.values()
    ]
