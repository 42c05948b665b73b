"""A worker's hold on a task: taken by a claim, kept while the claim counts, ended under its token.

The claim and the start of its task are one commit; so are its end and the report. A report under a claim that no longer
counts (its task was cancelled, timed out, or given to another) is refused, and leaves nothing but the claim's end.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy import RowMapping

from beat.silence import told
from db import crew, crew_requests, requests
from db.connect import transaction
from db.run import Rows
from workers.client import NotSettled
from workers.crew.report import Report
from workers.crew.settling import settle
from workers.runtime import Runtime
from workflows.errors import Refused

log = structlog.get_logger()

TURNS = 3  # claims in a row whose start was refused: then something else is wrong, and a later hint tries again


class StaleClaim(Refused):
    """The claim no longer counts: its task was cancelled, timed out or given to another worker.

    Nothing of the report was taken. Stop the work and claim another task.
    """


@dataclass(frozen=True, slots=True)
class Claim:
    """A task that is running in its worker's hands.

    Attributes:
        token: goes with every report; it is what fences off whoever lost the task.
        worker_id, task_id, run_id, workstream_id, project_id: of its instances.
        task: the task's entity id.
        kind: command, shell, agent or patch.
        context: the task's whole context: what to do, and under which terms.
        timeout_seconds: how long it may run.
        retry_count: how often it was tried before.
    """

    token: int
    worker_id: UUID
    task_id: UUID
    run_id: UUID
    workstream_id: UUID
    project_id: UUID
    task: str
    kind: str
    context: Mapping[str, Any]
    timeout_seconds: float
    retry_count: int


def take(runtime: Runtime, worker_id: UUID) -> Claim | None:
    """Claim the next fitting task and start it; None where nothing fits, or the worker may take nothing.

    Raises:
        NotSettled: its start was accepted but could not be applied in 30 s; the claim is given back.
    """
    for _ in range(TURNS):
        with transaction(runtime.database) as connection:
            task = crew.claim(connection, worker_id)
            fired = told(requests.accept(connection, crew_requests.claimed(task) if task else []))
        if task is None:
            return None
        runtime.hints.lanes(fired)
        if _started(runtime, task):
            return _claim(task)
        let_go(runtime, worker_id, task["token"])
    return None


def _started(runtime: Runtime, task: RowMapping) -> bool:
    try:
        start = settle(runtime, crew_requests.start_id(task["token"]), task["task_id"])
    except NotSettled:
        give_back(runtime, task["worker_id"], task["token"], f"worker {task['worker']} could not start it in time")
        raise
    if start["status"] != "applied":
        log.warning("start_refused", task=task["entity_id"], status=start["status"], why=start["result"])
    return bool(start["status"] == "applied")


def finish(runtime: Runtime, worker_id: UUID, token: int, report: Report) -> None:
    """Report how a task ended, and let go of it. The same report again is harmless.

    Raises:
        StaleClaim: the claim no longer counts; it is ended all the same.
    """

    def outcome(ended: RowMapping) -> Rows:
        counts = not ended["revoked"] and ended["current_state"] == "running"
        return [crew_requests.report(ended, report.trigger, report.says)] if counts else []

    if not _end(runtime, worker_id, token, outcome):
        raise StaleClaim(
            f"claim {token} no longer counts: its task was cancelled, timed out or given to another worker. "
            "The report was not taken; claim another task."
        )


def let_go(runtime: Runtime, worker_id: UUID, token: int) -> None:
    """End a claim without a report: its task moved on without this worker."""
    _end(runtime, worker_id, token, lambda _: [])


def give_back(runtime: Runtime, worker_id: UUID, token: int, reason: str) -> None:
    """End a claim and let its task be tried again, where it still counts."""

    def back(ended: RowMapping) -> Rows:
        return [] if ended["revoked"] else [crew_requests.given_back(ended, reason)]

    _end(runtime, worker_id, token, back)


def still_held(runtime: Runtime, token: int) -> bool:
    """Does the claim still count?"""
    with transaction(runtime.database) as connection:
        return crew.is_held(connection, token)


def _end(runtime: Runtime, worker_id: UUID, token: int, outcome: Callable[[RowMapping], Rows]) -> bool:
    """End a claim, with the outcome it leads to; whether that was taken, now or before."""
    with transaction(runtime.database) as connection:
        ended = crew.end(connection, worker_id, token)
        if ended is None:
            return crew.is_reported(connection, worker_id, token)
        rows, freed = outcome(ended), crew_requests.freed(ended)
        fired = told(requests.accept(connection, [*rows, *freed]))
    runtime.hints.lanes(fired)
    for each in freed:  # only an idle worker may claim: it should not have to wait until somebody applies this
        with suppress(NotSettled):
            settle(runtime, each["request_id"], worker_id)
    return bool(rows)


def _claim(task: RowMapping) -> Claim:
    return Claim(
        token=task["token"],
        worker_id=task["worker_id"],
        task_id=task["task_id"],
        run_id=task["run_id"],
        workstream_id=task["workstream_id"],
        project_id=task["project_id"],
        task=task["entity_id"],
        kind=task["kind"],
        context=task["context"],
        timeout_seconds=task["timeout_sec"],
        retry_count=task["retry_count"],
    )
