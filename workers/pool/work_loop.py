"""The work loop of a worker process: claim a task, carry it out, report, until no task fits."""

from collections.abc import Callable
from uuid import UUID

import structlog
from sqlalchemy.exc import DBAPIError

from interlock.db.retry import retried
from interlock.workers.pool import claims, registration, task_execution
from interlock.workers.pool.claims import Claim, StaleClaim
from interlock.workers.runtime import Runtime

log = structlog.get_logger()

TURN = 200  # tasks per message: then another message continues, so that Celery can renew the process
PATIENCE_SECONDS = 600.0  # how long a report waits for PostgreSQL; by then the worker counts as dead


def work(runtime: Runtime, worker_id: UUID, *, closing: Callable[[], bool] = lambda: False) -> int:
    """Carry out tasks until none fits this worker, or `closing` says to take no more; how many they were.

    Args:
        runtime: this process's connections.
        worker_id: this process's worker; it works on nothing else.
        closing: asked before each claim.

    Raises:
        DBAPIError: PostgreSQL is unreachable. A claimed task is given back by the next call, or when the worker was
            silent for too long.
    """
    registration.drop(runtime, worker_id, "lost hold of it")  # tasks of an earlier call that a fault ended
    for done in range(TURN):
        claim = None if closing() else claims.take(runtime, worker_id)
        if claim is None:
            return done
        _carry_out(runtime, claim)
    runtime.wakeups.work(1)
    return TURN


def _carry_out(runtime: Runtime, claim: Claim) -> None:
    log.info("task_taken", task=claim.task, claim=claim.token, retry=claim.retry_count)
    report = task_execution.carry_out(runtime, claim)

    def finish(before: DBAPIError | None) -> None:
        if before:
            log.warning("report_delayed", error=str(before.orig))
        claims.finish(runtime, claim.worker_id, claim.token, report)

    try:
        retried(finish, patience_seconds=PATIENCE_SECONDS)
    except StaleClaim as stale:
        log.warning("stale_claim", task=claim.task, claim=claim.token, error=str(stale))
    else:
        log.info("task_reported", task=claim.task, claim=claim.token, trigger=report.trigger)
