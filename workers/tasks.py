"""The Celery tasks, a few lines each: a task only says when; the engine, the effects and the sweeps say what."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from random import random
from uuid import UUID

from celery import Celery, Task

from db.connect import retryable
from workers import effects, sweeping
from workers.lanes import Drain
from workers.orchestration import scheduler
from workers.runtime import runtime
from workflows.backoff import full_jitter

RETRIES = 6  # then the dispatch sweep takes over: the rows are still there
RETRY_BASE_SECONDS, RETRY_CAP_SECONDS = (
    0.25,
    20.0,
)  # always a minute's fraction: longer delays are rows, not messages


def apply(self: Task, lane: int, request_id: str) -> None:
    """Apply what is due in a lane. `request_id` is the trigger that sent this hint; others may have gathered."""
    with _faults_retried(self):
        _drain().lane(lane)


def effect(self: Task, effect_id: str) -> None:
    """Run one effect under a lease, unless another worker has it."""
    with _faults_retried(self):
        effects.run(runtime(), UUID(effect_id))


def schedule(self: Task, run_id: str) -> None:
    """Bring a run up to date with what moved in it."""
    with _faults_retried(self):
        runtime().hints.lower_run(run_id)
        scheduler.schedule(runtime(), UUID(run_id))


def sweep(self: Task, name: str) -> None:
    """Run a sweep, unless another beat's run of this period came first. A fault waits for the next period."""
    sweeping.run(runtime(), name)


def register(app: Celery) -> None:
    """Make these functions tasks of an app, under the names that messages carry."""
    for task in (apply, effect, schedule, sweep):
        # Sweeps run every second for ever: in Flower they would bury the triggers; `doctor` watches them instead.
        seen = task is not sweep
        app.task(task, name=f"interlock.{task.__name__}", bind=True, max_retries=RETRIES, send_events=seen)


@cache
def _drain() -> Drain:
    return Drain(runtime())


@contextmanager
def _faults_retried(task: Task) -> Iterator[None]:
    """A lost connection, a deadlock, a serialization failure: the same work again, after full jitter."""
    try:
        yield
    except Exception as error:
        if not retryable(error):
            raise
        wait = full_jitter(
            task.request.retries + 1,
            base_seconds=RETRY_BASE_SECONDS,
            cap_seconds=RETRY_CAP_SECONDS,
            chance=random(),  # noqa: S311 - jitter, not a secret
        )
        raise task.retry(exc=error, countdown=wait) from error
