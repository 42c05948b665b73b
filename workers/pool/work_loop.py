"""A worker process's shift: claim, labour, finish, until nothing fits."""

from collections.abc import Callable
from time import monotonic, sleep
from typing import TypeVar
from uuid import UUID

import structlog
from sqlalchemy.exc import DBAPIError

from db.connect import retryable
from workers.crew import claims, labour, member
from workers.crew.claims import Claim, StaleClaim
from workers.runtime import Runtime

log = structlog.get_logger()

T = TypeVar("T")

TURN = 200  # tasks of one shift: then another message goes on, so that Celery can renew the process
PATIENCE_SECONDS = 600.0  # what a finished task's report waits for PostgreSQL; by then others have given it up
PAUSE_SECONDS = 0.5


def work(runtime: Runtime, worker_id: UUID, *, closing: Callable[[], bool] = lambda: False) -> int:
    """Carry out tasks until none fits this worker, or `closing` says to take no more; how many it were.

    Args:
        runtime: this process's connections.
        worker_id: who this process is; it works on nothing else.
        closing: asked before each claim.

    Raises:
        DBAPIError: PostgreSQL is away; what was claimed is given back at the next shift, or for silence.
    """
    member.drop(runtime, worker_id, "lost hold of it")  # of an earlier shift that a fault ended
    for done in range(TURN):
        claim = None if closing() else claims.take(runtime, worker_id)
        if claim is None:
            return done
        _carry_out(runtime, claim)
    runtime.hints.work(1)
    return TURN


def _carry_out(runtime: Runtime, claim: Claim) -> None:
    log.info("task_taken", task=claim.task, claim=claim.token, retry=claim.retry_count)
    report = labour.carry_out(runtime, claim)
    try:
        _insist(lambda: claims.finish(runtime, claim.worker_id, claim.token, report))
    except StaleClaim as stale:
        log.warning("stale_claim", task=claim.task, claim=claim.token, error=str(stale))
    else:
        log.info("task_reported", task=claim.task, claim=claim.token, trigger=report.trigger)


def _insist(report: Callable[[], T]) -> T:
    """The work is done: its report is worth waiting for PostgreSQL."""
    until = monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return report()
        except DBAPIError as error:
            if not retryable(error) or monotonic() > until:
                raise
            log.warning("report_delayed", error=str(error.orig))
        sleep(PAUSE_SECONDS)
