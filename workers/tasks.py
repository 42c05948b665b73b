"""The Celery tasks, a few lines each: a task only says when; the engine, the effects and the sweeps do the work.

What a task returns is for people: the result that Flower shows (docs/celery.md).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache, lru_cache
from random import random
from typing import Any
from uuid import UUID

from celery import Celery, Task

from interlock.db.connection import retryable
from interlock.db.core import instances, requests
from interlock.workers import effect_runner, sweeps
from interlock.workers.client.partition_drainer import Drain
from interlock.workers.engine.answers import told
from interlock.workers.orchestration import scheduler
from interlock.workers.pool import celery_pool
from interlock.workers.runtime import runtime
from interlock.workers.subscriptions import delivery
from interlock.workflows.backoff import full_jitter
from interlock.workflows.output.escaping import shown

# Effects hold a lease that a sweep takes back, so their messages are acknowledged when read: RabbitMQ closes the
# channel of a node that holds one for half an hour.
EFFECT = {"acks_late": False, "soft_time_limit": 900.0, "time_limit": 930.0}  # git at its slowest; then tried again
GATE = {"acks_late": False}  # each gate has a time limit of its own
WORK = {"acks_late": False}  # tasks have time limits of their own; a claim, not this message, says which worker has one
DELIVER = {"acks_late": False}  # a lease, too; its calls have time limits of their own
OWN: Mapping[str, Mapping[str, Any]] = {"effect": EFFECT, "gate": GATE, "work": WORK, "deliver": DELIVER}
NAMES_KEPT = 1_000  # of runs, whose names never change: not asked for at each pass of a scheduler
RETRIES = 6  # after that the dispatch sweep takes over: the rows are still there
# Always less than a minute: longer delays are rows, not messages.
RETRY_BASE_SECONDS, RETRY_CAP_SECONDS = 0.25, 20.0


class Said:
    """What a task returns: Flower shows it as it is, not as a quoted string."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def apply(self: Task, partition: int, request_id: str, early: bool = False) -> Said:
    """Apply what is due in a partition.

    `request_id` is the trigger that sent this wake-up; others may be due as well. `early`: it may not be committed yet.
    """
    with _faults_retried(self):
        done = _drain().partition(partition, early=request_id if early else None)
        row = None if request_id in done.answers else requests.outcome(runtime().statements, request_id)
        return Said(told(done.answers, request_id, row))


def effect(self: Task, effect_id: str) -> Said:
    """Run one effect under a lease, unless another worker has it."""
    with _faults_retried(self):
        return Said(effect_runner.run(runtime(), UUID(effect_id)))


def gate(self: Task, effect_id: str) -> Said:
    """Run an effect that may take long: a gate's command, under the gate's own time limit."""
    return effect(self, effect_id)


def deliver(self: Task, subscription_id: str) -> Said:
    """Deliver the events of a subscription under a lease, unless another worker does."""
    with _faults_retried(self):
        runtime().wakeups.lower(f"delivery:{subscription_id}")
        return Said(shown(delivery.deliver(runtime(), UUID(subscription_id))))


def schedule(self: Task, run_id: str) -> Said:
    """Run a run's scheduler on what moved in it."""
    with _faults_retried(self):
        runtime().wakeups.lower(f"run:{run_id}")
        signals = scheduler.schedule(runtime(), UUID(run_id))
        return Said(f"{_name_of(run_id)}: signals read: {signals}")


def sweep(self: Task, *names: str) -> None:
    """Run sweeps, except those that another beat's message ran in this period. Faults wait for the next period."""
    sweeps.run(runtime(), *names)


def work(self: Task) -> Said:
    """Carry out tasks in this process until none fits its worker."""
    with _faults_retried(self):
        return Said(f"tasks carried out: {celery_pool.work()}")


def register(app: Celery) -> None:
    """Register these functions as tasks of an app, under the names that messages carry."""
    for task in (apply, effect, gate, deliver, schedule, sweep, work):
        # Sweeps run every second for ever and would bury the triggers in Flower; `doctor` watches them instead.
        seen = task is not sweep
        own: Mapping[str, Any] = OWN.get(task.__name__, {})
        app.task(task, name=f"interlock.{task.__name__}", bind=True, max_retries=RETRIES, send_events=seen, **own)


@lru_cache(NAMES_KEPT)
def _name_of(run_id: str) -> str:
    with runtime().statements.connect() as connection:
        return instances.name_of(connection, UUID(run_id))


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
