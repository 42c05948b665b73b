"""The Celery tasks, a few lines each: a task only says when; the engine, the effects and the sweeps do the work."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from random import random
from typing import Any
from uuid import UUID

from celery import Celery, Task

from interlock.db.connection import retryable
from interlock.workers import sweeps
from interlock.workers.client.partition_drainer import Drain
from interlock.workers.effects import runner
from interlock.workers.orchestration import scheduler
from interlock.workers.pool import celery_pool
from interlock.workers.runtime import runtime
from interlock.workflows.backoff import full_jitter

# Effects hold a lease that a sweep takes back, so their messages are acknowledged when read: acknowledged at the end,
# a message would be delivered again after the visibility timeout.
EFFECT = {"acks_late": False, "soft_time_limit": 900.0, "time_limit": 930.0}  # git at its slowest; then tried again
GATE = {"acks_late": False}  # each gate has a time limit of its own
WORK = {"acks_late": False}  # tasks have time limits of their own; a claim, not this message, says which worker has one
OWN: Mapping[str, Mapping[str, Any]] = {"effect": EFFECT, "gate": GATE, "work": WORK}
RETRIES = 6  # after that the dispatch sweep takes over: the rows are still there
# Always less than a minute: longer delays are rows, not messages.
RETRY_BASE_SECONDS, RETRY_CAP_SECONDS = 0.25, 20.0


def apply(self: Task, partition: int, request_id: str, early: bool = False) -> None:
    """Apply what is due in a partition.

    `request_id` is the trigger that sent this wake-up; others may be due as well. `early`: it may not be committed yet.
    """
    with _faults_retried(self):
        _drain().partition(partition, early=request_id if early else None)


def effect(self: Task, effect_id: str) -> None:
    """Run one effect under a lease, unless another worker has it."""
    with _faults_retried(self):
        runtime().wakeups.lower(f"effect:{effect_id}")
        runner.run(runtime(), UUID(effect_id))


def gate(self: Task, effect_id: str) -> None:
    """Run an effect that may take long: a gate's command, under the gate's own time limit."""
    effect(self, effect_id)


def schedule(self: Task, run_id: str) -> None:
    """Run a run's scheduler on what moved in it."""
    with _faults_retried(self):
        runtime().wakeups.lower(f"run:{run_id}")
        scheduler.schedule(runtime(), UUID(run_id))


def sweep(self: Task, *names: str) -> None:
    """Run sweeps, except those that another beat's message ran in this period. Faults wait for the next period."""
    sweeps.run(runtime(), *names)


def work(self: Task) -> None:
    """Carry out tasks in this process until none fits its worker."""
    with _faults_retried(self):
        celery_pool.work()


def register(app: Celery) -> None:
    """Register these functions as tasks of an app, under the names that messages carry."""
    for task in (apply, effect, gate, schedule, sweep, work):
        # Sweeps run every second for ever and would bury the triggers in Flower; `doctor` watches them instead.
        seen = task is not sweep
        own: Mapping[str, Any] = OWN.get(task.__name__, {})
        app.task(task, name=f"interlock.{task.__name__}", bind=True, max_retries=RETRIES, send_events=seen, **own)


@cache
def _drain() -> Drain:
    return Drain(runtime())


@contextmanager
def _faults_retried(task: Task) -> Iterator[None]:
    """Retry after a lost connection, a deadlock or a serialization failure, with full jitter."""
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
