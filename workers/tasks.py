"""The Celery tasks, a few lines each: a task only says when; the engine, the effects and the sweeps say what."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from random import random
from typing import Any
from uuid import UUID

from celery import Celery, Task

from db.connect import retryable
from workers import effects, sweeping
from workers.crew import pool
from workers.lanes import Drain
from workers.orchestration import scheduler
from workers.runtime import runtime
from workflows.backoff import full_jitter

# What acts on the world holds a lease that a sweep takes back, so its message is done with once it was read: one that
# waited for the end would be delivered again after the visibility timeout.
EFFECT = {"acks_late": False, "soft_time_limit": 900.0, "time_limit": 930.0}  # git at its slowest; then tried again
GATE = {"acks_late": False}  # each gate has a limit of its own
WORK = {"acks_late": False}  # tasks have limits of their own; a claim, not this message, says who has one
OWN: Mapping[str, Mapping[str, Any]] = {"effect": EFFECT, "gate": GATE, "work": WORK}
RETRIES = 6  # then the dispatch sweep takes over: the rows are still there
RETRY_BASE_SECONDS, RETRY_CAP_SECONDS = (
    0.25,
    20.0,
)  # always a minute's fraction: longer delays are rows, not messages


def apply(self: Task, lane: int, request_id: str, early: bool = False) -> None:
    """Apply what is due in a lane.

    `request_id` is the trigger that sent this hint; others may have gathered. `early`: it may still be being committed.
    """
    with _faults_retried(self):
        _drain().lane(lane, early=request_id if early else None)


def effect(self: Task, effect_id: str) -> None:
    """Run one effect under a lease, unless another worker has it."""
    with _faults_retried(self):
        runtime().hints.lower_effect(effect_id)
        effects.run(runtime(), UUID(effect_id))


def gate(self: Task, effect_id: str) -> None:
    """Run an effect that may take its time: a gate's command, under the gate's own time limit."""
    effect(self, effect_id)


def schedule(self: Task, run_id: str) -> None:
    """Bring a run up to date with what moved in it."""
    with _faults_retried(self):
        runtime().hints.lower_run(run_id)
        scheduler.schedule(runtime(), UUID(run_id))


def sweep(self: Task, name: str) -> None:
    """Run a sweep, unless another beat's run of this period came first. A fault waits for the next period."""
    sweeping.run(runtime(), name)


def work(self: Task) -> None:
    """Carry out tasks in this process until none fits its worker."""
    with _faults_retried(self):
        pool.work()


def register(app: Celery) -> None:
    """Make these functions tasks of an app, under the names that messages carry."""
    for task in (apply, effect, gate, schedule, sweep, work):
        # Sweeps run every second for ever: in Flower they would bury the triggers; `doctor` watches them instead.
        seen = task is not sweep
        own: Mapping[str, Any] = OWN.get(task.__name__, {})
        app.task(task, name=f"interlock.{task.__name__}", bind=True, max_retries=RETRIES, send_events=seen, **own)


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
