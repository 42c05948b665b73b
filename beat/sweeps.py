"""The sweeps: bounded batches, `SKIP LOCKED`, and nothing decided here. Each returns what should be hinted."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, RowMapping
from uuid_utils.compat import uuid7

from db import effects, metrics, requests, supervision

WAKE_BATCH = 5_000
LEASE_BATCH = 500
PRUNE_BATCH = 5_000
EFFECT_HINTS = 200
RUN_HINTS = 200
JOB_BATCH = 100
WORK_HINTS = 64


def dispatch(connection: Connection) -> tuple[int, Sequence[RowMapping], Sequence[RowMapping]]:
    """Wake what is due; how many woke, the lanes with something pending, and the effects waiting for a worker."""
    woken = requests.wake(connection, limit=WAKE_BATCH)
    return woken, requests.lanes_due(connection), effects.due(connection, limit=EFFECT_HINTS)


def leases(connection: Connection, *, max_attempts: int) -> Sequence[RowMapping]:
    """Take back effects whose lease ran out; those that can be run again. The others' instances are told."""
    expired = effects.expire_leases(connection, max_attempts=max_attempts, limit=LEASE_BATCH)
    metrics.note_each(connection, metrics.LEASE_EXPIRIES, ((effect["name"],) for effect in expired))
    told = [
        effects.telling(effect, effect["failed_trigger"], error=effect["error"], trace=effect["trace"])
        for effect in expired
        if effect["status"] == "dead" and effect["failed_trigger"]
    ]
    requests.accept(connection, told)
    return [effect for effect in expired if effect["status"] == "pending"]


def prune(connection: Connection, *, keep_days: float, keep_effects_days: float | None = None) -> int:
    """Delete a batch of what is finished and past its keeping time; how many rows went, 0 when none are left.

    Args:
        connection: the sweep's transaction.
        keep_days: how long finished requests are kept, and their ids known.
        keep_effects_days: how long effects are that are done; None: as long.
    """
    effects_days = keep_days if keep_effects_days is None else keep_effects_days
    return requests.prune(connection, keep_days=keep_days, limit=PRUNE_BATCH) + effects.prune(
        connection, keep_days=effects_days, limit=PRUNE_BATCH
    )


def jobs(connection: Connection) -> int:
    """Ask again for what jobs could not have at once (seed 002, section 4.2); how many triggers that took.

    Pending jobs get their workers once there are enough idle ones; paused workers whose job is over are terminated.
    """
    waiting = supervision.servable(connection, limit=JOB_BATCH)
    asked = [_bound(each, "allocate_resources") for each in waiting if supervision.reserve(connection, each["id"])]
    asked += [_bound(each, "terminate") for each in supervision.stranded(connection, limit=JOB_BATCH)]
    return len(requests.accept(connection, asked))


def _bound(row: RowMapping, trigger: str) -> dict[str, Any]:
    """A trigger for what a sweep saw; superseded if that has moved on by then."""
    request_id = str(uuid7())
    return {
        "request_id": request_id,
        "fingerprint": request_id.encode().hex(),
        "workflow_id": row["id"],
        "trigger": trigger,
        "triggered_by": "system",
        "origin": "timer",
        "bound_version": row["version"],
    }
