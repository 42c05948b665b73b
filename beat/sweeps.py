"""The sweeps: bounded batches with `SKIP LOCKED`, without decisions. Each returns what needs a wake-up."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, RowMapping
from uuid_utils.compat import uuid7

from interlock.db.core import budgets, counters, effects, limits, requests
from interlock.db.core.request_rows import by_state, internal
from interlock.db.orchestration import scheduling, workers
from interlock.db.orchestration.jobs import reserve, servable, stranded

WAKE_BATCH = 5_000
LEASE_BATCH = 500
PRUNE_BATCH = 5_000
EFFECT_WAKEUPS = 200
RUN_WAKEUPS = 200
JOB_BATCH = 100
WORK_WAKEUPS = 64


@dataclass(frozen=True, slots=True)
class DueWork:
    """What needs a wake-up, and how many requests were made pending (`woken`)."""

    woken: int
    partitions: Sequence[RowMapping]
    effects: Sequence[RowMapping]
    runs: Sequence[UUID]
    free_workers: int


def dispatch(connection: Connection, *, silent_seconds: float) -> DueWork:
    """Make due requests pending; returns partitions, effects and runs with work, and how many workers could take tasks.

    Args:
        connection: the sweep's; each statement may be a transaction of its own.
        silent_seconds: a worker silent for longer takes no task.
    """
    return DueWork(
        requests.wake(connection, limit=WAKE_BATCH),
        requests.partitions_due(connection),
        effects.due(connection, limit=EFFECT_WAKEUPS),
        scheduling.runs_signalled(connection, limit=RUN_WAKEUPS),
        workers.count_free_workers(connection, silent_seconds=silent_seconds, limit=WORK_WAKEUPS),
    )


def leases(
    connection: Connection, *, max_attempts: int, own_attempts: Mapping[str, int], gone: Collection[str] = ()
) -> Sequence[RowMapping]:
    """Take back effects whose lease expired; returns those to run again. The others fire their `failed` trigger.

    Args:
        connection: the sweep's transaction.
        max_attempts: after so many an effect is dead.
        own_attempts: name -> the same, of effects that have a number of their own.
        gone: holders that are known to have died: their leases do not have to expire.
    """
    expired = effects.expire_leases(
        connection, max_attempts=max_attempts, own_attempts=own_attempts, limit=LEASE_BATCH, gone=gone
    )
    counters.note_each(connection, counters.LEASE_EXPIRIES, ((effect["name"],) for effect in expired))
    reports = [
        effects.outcome_request(effect, effect["failed_trigger"], error=effect["error"], trace=effect["trace"])
        for effect in expired
        if effect["status"] == "dead" and effect["failed_trigger"]
    ]
    requests.accept(connection, reports)
    return [effect for effect in expired if effect["status"] == "pending"]


def prune(connection: Connection, *, keep_days: float, keep_effects_days: float | None = None) -> int:
    """Delete a batch of finished rows past their retention time, and of starts and uses that no limit or budget counts.

    Returns the number of rows, 0 when none are left.

    Args:
        connection: the sweep's transaction.
        keep_days: how long finished requests, and their ids, are kept.
        keep_effects_days: how long finished effects are kept; None: as long as requests.
    """
    effects_days = keep_days if keep_effects_days is None else keep_effects_days
    return (
        requests.prune(connection, keep_days=keep_days, limit=PRUNE_BATCH)
        + effects.prune(connection, keep_days=effects_days, limit=PRUNE_BATCH)
        + limits.prune(connection, limit=PRUNE_BATCH)
        + budgets.prune(connection, limit=PRUNE_BATCH)
    )


def servable_jobs(connection: Connection) -> Sequence[RowMapping]:
    """Pending jobs that could start now, oldest first."""
    return servable(connection, limit=JOB_BATCH)


def start_job(connection: Connection, job: RowMapping) -> int:
    """Retry the allocation of a pending job (JOB-1); returns the number of triggers fired, 0 or 1.

    In a transaction of its own: it locks the limits that count the job, in one order (LIMIT-4).
    """
    rows = [_bound(job, "allocate_resources")] if reserve(connection, job["id"]) else []
    return len(requests.accept(connection, rows))


def end_stranded(connection: Connection) -> int:
    """Terminate workers that could not end with their job (JOB-5); returns the number of triggers fired."""
    rows = [_bound(each, "terminate") for each in stranded(connection, limit=JOB_BATCH)]
    return len(requests.accept(connection, rows))


def _bound(row: RowMapping, trigger: str) -> dict[str, Any]:
    """A trigger for an instance in the state that a sweep saw; it is superseded if the instance changes before."""
    return internal(str(uuid7()), row["id"], trigger, by="system", right=by_state(row["version"]), origin="timer")
