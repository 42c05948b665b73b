"""The triggers that follow from taking and ending claims, as rows for `requests.accept` in the same commit."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import RowMapping

from interlock.db.core.request_rows import internal
from interlock.db.statements import Rows


def start_id(token: int) -> str:
    """The request_id of a claimed task's start."""
    return f"claim:{token}:start"


def claimed(task: RowMapping) -> Rows:
    """The requests that follow a claim: its task starts; its worker becomes busy if it is full.

    Args:
        task: a row of `claims.claim`.
    """
    who = {"worker_id": str(task["worker_id"]), "worker": task["worker"], "claim": task["token"]}
    rows = [
        internal(
            start_id(task["token"]),
            task["task_id"],
            "worker_started",
            by=task["worker"],
            version=task["version"],
            metadata=who | {"capabilities": task["capabilities"]},
        )
    ]
    if task["full"]:
        metadata = {"task_id": str(task["task_id"]), "required_capabilities": task["required_capabilities"]}
        rows.append(
            internal(f"claim:{task['token']}:full", task["worker_id"], "task_assigned", by="crew", metadata=metadata),
        )
    return rows


def freed(ended: RowMapping) -> Rows:
    """The requests on the worker that follow a claim's end: it becomes idle; if it is draining, it is shut down.

    Args:
        ended: a row of `claims.end`.
    """
    metadata = {"task_id": str(ended["task_id"])}
    why = {"reason": ended["drain_reason"]} if ended["drain_reason"] else {}
    triggers = [("task_completed", "crew", metadata)] * ended["was_full"]
    triggers += [("shutdown_requested", ended["drained_by"] or "crew", metadata | why)] * ended["drained"]
    return [
        internal(f"claim:{ended['token']}:{trigger}", ended["worker_id"], trigger, by=by, metadata=said)
        for trigger, by, said in triggers
    ]


def report_id(token: int) -> str:
    """The request_id of a claim's report, which therefore counts once."""
    return f"claim:{token}:report"


def report(ended: RowMapping, trigger: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The request that reports how a task ended.

    Args:
        ended: a row of `claims.end`. The report is superseded if the task leaves `running` before.
        trigger: `execution_completed`, `execution_failed` or `timeout_exceeded`.
        metadata: exit_code, error, duration_seconds, stdout, stderr.
    """
    who = {"worker_id": str(ended["worker_id"]), "worker": ended["worker"], "claim": ended["token"]}
    return internal(
        report_id(ended["token"]),
        ended["task_id"],
        trigger,
        by=ended["worker"],
        version=ended["version"],
        metadata=who | dict(metadata),
    )


def task_returned(task: RowMapping, reason: str) -> dict[str, Any]:
    """The request that takes a task from its worker. It counts as a failure: the task is retried while retries remain.

    Args:
        task: its row of `claims.held` or `claims.end`.
        reason: why; stored in history.
    """
    # A start that is accepted but not yet applied comes first; this trigger is then for the version after it.
    version = task["version"] + (task["current_state"] == "queued")
    metadata = {
        "worker_id": str(task["worker_id"]),
        "worker": task["worker"],
        "claim": task["token"],
        "reason": reason,
        "error": reason,
        "exit_code": None,
    }
    request_id = f"claim:{task['token']}:given_back:{version}"
    return internal(request_id, task["task_id"], "execution_failed", by="crew", version=version, metadata=metadata)
