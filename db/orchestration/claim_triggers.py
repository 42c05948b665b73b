"""The triggers that follow from taking and ending claims, as rows for `requests.accept` in the same commit."""

from collections.abc import Mapping
from typing import Any

from interlock.db.core.request_rows import OPERATOR, by_claim, internal, of_claim, own_id
from interlock.db.fast_path import Row
from interlock.db.statements import Rows

GIVEN_BACK = "execution_failed"  # what a task gets that is taken from its worker


def start_id(claim_id: int) -> str:
    """The request_id of a claimed task's start."""
    return own_id("claim", claim_id, "start")


def claimed(task: Row) -> Rows:
    """The requests that follow a claim: its task starts; its worker becomes busy if it is full.

    Args:
        task: a row of `claims.claim`.
    """
    who = {"worker_id": str(task["worker_id"]), "worker": task["worker"], "claim": task["claim_id"]}
    rows = [
        internal(
            start_id(task["claim_id"]),
            task["task_id"],
            "worker_started",
            by=task["worker"],
            right=of_claim(task["token"]),
            version=task["version"],
            metadata=who | {"capabilities": task["capabilities"]},
        )
    ]
    if task["full"]:
        metadata = {"task_id": str(task["task_id"]), "required_capabilities": task["required_capabilities"]}
        rows.append(
            internal(
                own_id("claim", task["claim_id"], "full"),
                task["worker_id"],
                "task_assigned",
                by="crew",
                right=by_claim(task["claim_id"]),
                metadata=metadata,
            ),
        )
    return rows


def freed(ended: Row) -> Rows:
    """The requests on the worker that follow a claim's end: it becomes idle; if it is draining, it is shut down.

    Its shutdown was asked for, and proven, before (WORKER-10): the claim, its last one, proves that it is due now.

    Args:
        ended: a row of `claims.end`.
    """
    metadata, due = {"task_id": str(ended["task_id"])}, by_claim(ended["claim_id"])
    why = {"reason": ended["drain_reason"]} if ended["drain_reason"] else {}
    asker = ended["drained_by"] or ended["worker"]
    triggers = []
    if ended["was_full"]:
        triggers.append(("task_completed", "crew", due, metadata))
    if ended["drained"]:
        triggers.append(("shutdown_requested", asker, OPERATOR if ended["by_operator"] else due, metadata | why))
    return [
        internal(
            own_id("claim", ended["claim_id"], trigger), ended["worker_id"], trigger, by=by, right=right, metadata=data
        )
        for trigger, by, right, data in triggers
    ]


def report_id(claim_id: int) -> str:
    """The request_id of a claim's report, which therefore counts once."""
    return own_id("claim", claim_id, "report")


def report(ended: Row, trigger: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The request that reports how a task ended.

    Args:
        ended: a row of `claims.end`. The report is superseded if the task leaves `running` before.
        trigger: `execution_completed`, `execution_failed` or `timeout_exceeded`.
        metadata: exit_code, error, duration_seconds, stdout, stderr.
    """
    who = {"worker_id": str(ended["worker_id"]), "worker": ended["worker"], "claim": ended["claim_id"]}
    return internal(
        report_id(ended["claim_id"]),
        ended["task_id"],
        trigger,
        by=ended["worker"],
        right=of_claim(ended["token"]),
        version=ended["version"],
        metadata=dict(metadata) | who,  # its own output does not say who reports
    )


def task_returned(task: Row, reason: str) -> Rows:
    """The request that takes a task from its worker; none if its claim was revoked before.

    It counts as a failure: the task is retried while retries remain.

    Args:
        task: its row of `claims.end`.
        reason: why; stored in history.
    """
    if task["revoked"]:
        return []
    # A start that is accepted but not yet applied comes first; this trigger is then for the version after it.
    version = task["version"] + (task["current_state"] == "queued")
    metadata = {
        "worker_id": str(task["worker_id"]),
        "worker": task["worker"],
        "claim": task["claim_id"],
        "reason": reason,
        "error": reason,
        "exit_code": None,
    }
    request_id = own_id("claim", task["claim_id"], "given_back", version)
    return [
        internal(
            request_id,
            task["task_id"],
            GIVEN_BACK,
            by="crew",
            right=of_claim(task["token"]),
            version=version,
            metadata=metadata,
        )
    ]
