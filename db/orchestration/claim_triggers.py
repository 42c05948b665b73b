"""What claiming and letting go lead to, as rows for `requests.accept` in the same commit."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import RowMapping

from interlock.db.statements import Rows


def start_id(token: int) -> str:
    """The request_id under which a claimed task starts."""
    return f"claim:{token}:start"


def claimed(task: RowMapping) -> Rows:
    """The requests that a claim leads to: its task starts; its worker, if it can take no more, becomes busy.

    Args:
        task: what `crew.claim` returned.
    """
    who = {"worker_id": str(task["worker_id"]), "worker": task["worker"], "claim": task["token"]}
    rows = [
        request(
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
            request(f"claim:{task['token']}:full", task["worker_id"], "task_assigned", by="crew", metadata=metadata),
        )
    return rows


def freed(ended: RowMapping) -> Rows:
    """The requests that a claim's end leads to, for its worker: it is idle again; draining, it is shut down.

    Args:
        ended: what `crew.end` returned.
    """
    metadata = {"task_id": str(ended["task_id"])}
    triggers = ("task_completed",) * ended["was_full"] + ("shutdown_requested",) * ended["drained"]
    return [
        request(f"claim:{ended['token']}:{trigger}", ended["worker_id"], trigger, by="crew", metadata=metadata)
        for trigger in triggers
    ]


def report_id(token: int) -> str:
    """The request_id under which a claim's outcome is told: once."""
    return f"claim:{token}:report"


def report(ended: RowMapping, trigger: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The request that tells how a task ended.

    Args:
        ended: what `crew.end` returned; the task must be running, so that what overtakes the report supersedes it.
        trigger: `execution_completed`, `execution_failed` or `timeout_exceeded`.
        metadata: exit_code, error, duration_seconds, stdout, stderr.
    """
    who = {"worker_id": str(ended["worker_id"]), "worker": ended["worker"], "claim": ended["token"]}
    return request(
        report_id(ended["token"]),
        ended["task_id"],
        trigger,
        by=ended["worker"],
        version=ended["version"],
        metadata=who | dict(metadata),
    )


def given_back(task: RowMapping, reason: str) -> dict[str, Any]:
    """The request that takes a task from its worker: a failure like another, so it is tried again while retries remain.

    Args:
        task: what `crew.held` or `crew.end` returned of it.
        reason: why, for its history.
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
    return request(request_id, task["task_id"], "execution_failed", by="crew", version=version, metadata=metadata)


def request(
    request_id: str,
    instance_id: UUID,
    trigger: str,
    *,
    by: str,
    version: int | None = None,
    metadata: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A row for `requests.accept`; `version` binds it to where the instance stands."""
    return {
        "request_id": request_id,
        "fingerprint": request_id.encode().hex(),
        "workflow_id": instance_id,
        "trigger": trigger,
        "triggered_by": by,
        "origin": "follow_up",
        "bound_version": version,
        "metadata": metadata or {},
    }
