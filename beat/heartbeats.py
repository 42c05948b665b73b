"""Silent workers: a worker whose heartbeats stopped gets a trigger, and its tasks are given back."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, RowMapping

from interlock.db.core import request_rows, requests
from interlock.db.orchestration import claim_triggers, claims, workers

SILENT_BATCH = 500
GONE, RESUME = "max_timeout_exceeded", "resume"

Wakeups = Sequence[Mapping[str, Any]]


def heartbeats(connection: Connection, *, silent_seconds: float, gone_seconds: float) -> tuple[int, Wakeups]:
    """Process a batch of workers whose heartbeats stopped; returns their number, and wake-ups for the fired triggers.

    Args:
        connection: the sweep's transaction.
        silent_seconds: how long a busy worker may be silent (WORKER-7: two heartbeats), and a `uet_worker` in any
            state (UET-2), which then counts as crashed.
        gone_seconds: the silence after which an unresponsive, idle or suspended worker is shut down.
    """
    found = [
        *workers.silent(connection, silent_seconds=silent_seconds, gone_seconds=gone_seconds, limit=SILENT_BATCH),
        *workers.silent_uet(connection, silent_seconds=silent_seconds, limit=SILENT_BATCH),
    ]
    return len(found), release_tasks(connection, found, "fell silent") if found else []


def release_tasks(
    connection: Connection, lost: Sequence[RowMapping], message: str, *, certain: bool = False
) -> Wakeups:
    """Give back the workers' tasks, and fire each worker's triggers; a worker that is shut down then holds no claim.

    Args:
        connection: the caller's transaction.
        lost: worker_id, name, version, and `owed`, the trigger to fire, of each.
        message: what happened to them, phrased to follow `worker NAME …`.
        certain: the workers are known to be gone, so they get no time to recover.
    """
    names = {row["worker_id"]: f"worker {row['name']} {message}" for row in lost}
    rows = [claim_triggers.task_returned(task, names[task["worker_id"]]) for task in claims.held(connection, names)]
    owed = {row["worker_id"]: _owed(row, certain) for row in lost}
    claims.retire(connection, [worker for worker, triggers in owed.items() if GONE in triggers])
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
    # A suspended worker can leave its state only through `idle`.
    ends = row["owed"] == RESUME or (certain and row["owed"] != GONE)
    return [row["owed"], GONE] if ends else [row["owed"]]


def wakeups_of(accepted: Mapping[str, RowMapping]) -> Wakeups:
    """The wake-ups for accepted requests."""
    return [
        dict(row) | {"workflow_type": "crew", "entity_id": str(row["workflow_id"]), "triggered_by": "crew"}
        for row in accepted.values()
    ]
