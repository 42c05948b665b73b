"""The crew's heartbeats: who fell silent is owed a move, and what they held is given back."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, RowMapping

from db import crew, crew_requests, requests, roster

SILENT_BATCH = 500
GONE, RESUME = "max_timeout_exceeded", "resume"

Hints = Sequence[Mapping[str, Any]]


def heartbeats(connection: Connection, *, silent_seconds: float, gone_seconds: float) -> tuple[int, Hints]:
    """Relieve a batch of workers whose heartbeats stopped; how many, and the triggers fired, to be hinted at.

    Args:
        connection: the sweep's transaction.
        silent_seconds: how long a busy worker may be silent (SSOT 1.5.6: two heartbeats), and one of the execution
            engine in whatever state (SSOT 2.1.3), which then has crashed.
        gone_seconds: after how long an unresponsive, idle or suspended one is shut down.
    """
    found = [
        *roster.silent(connection, silent_seconds=silent_seconds, gone_seconds=gone_seconds, limit=SILENT_BATCH),
        *roster.silent_uet(connection, silent_seconds=silent_seconds, limit=SILENT_BATCH),
    ]
    return len(found), relieve(connection, found, "fell silent") if found else []


def relieve(connection: Connection, lost: Sequence[RowMapping], says: str, *, certain: bool = False) -> Hints:
    """Give back what workers hold, and fire what each is owed; one that is shut down holds nothing afterwards.

    Args:
        connection: the caller's transaction.
        lost: worker_id, name, version and `owed` of each.
        says: what became of them, as `worker NAME …` goes on.
        certain: they are no more; nobody waits for them to recover.
    """
    names = {row["worker_id"]: f"worker {row['name']} {says}" for row in lost}
    rows = [crew_requests.given_back(task, names[task["worker_id"]]) for task in crew.held(connection, names)]
    owed = {row["worker_id"]: _owed(row, certain) for row in lost}
    crew.retire(connection, [worker for worker, triggers in owed.items() if GONE in triggers])
    for row in lost:
        for version, trigger in enumerate(owed[row["worker_id"]], row["version"]):
            rows.append(_request(row["worker_id"], version, trigger, names[row["worker_id"]]))
    return told(requests.accept(connection, rows))


def _request(worker_id: UUID, version: int, trigger: str, reason: str) -> dict[str, Any]:
    request_id = f"{worker_id}:{version}:{trigger}"
    says = {"reason": reason}
    return crew_requests.request(request_id, worker_id, trigger, by="heartbeats", version=version, says=says)


def _owed(row: RowMapping, certain: bool) -> list[str]:
    # A suspended worker has no other way out of its state than to be idle for a moment.
    ends = row["owed"] == RESUME or (certain and row["owed"] != GONE)
    return [row["owed"], GONE] if ends else [row["owed"]]


def told(accepted: Mapping[str, RowMapping]) -> Hints:
    """Accepted requests of tasks and workers, as hints name them."""
    return [
        dict(row) | {"workflow_type": "crew", "entity_id": str(row["workflow_id"]), "triggered_by": "crew"}
        for row in accepted.values()
    ]
