"""The sweeps: bounded batches, `SKIP LOCKED`, and nothing decided here. Each returns what should be hinted."""

from collections.abc import Sequence

from sqlalchemy import Connection, RowMapping

from db import effects, requests

WAKE_BATCH = 5_000
LEASE_BATCH = 500
PRUNE_BATCH = 5_000
EFFECT_HINTS = 200
RUN_HINTS = 200


def dispatch(connection: Connection) -> tuple[int, Sequence[RowMapping], Sequence[RowMapping]]:
    """Wake what is due; how many woke, the lanes with something pending, and the effects waiting for a worker."""
    woken = requests.wake(connection, limit=WAKE_BATCH)
    return woken, requests.lanes_due(connection), effects.due(connection, limit=EFFECT_HINTS)


def leases(connection: Connection, *, max_attempts: int) -> Sequence[RowMapping]:
    """Take back effects whose lease ran out; those that can be run again. The others' instances are told."""
    expired = effects.expire_leases(connection, max_attempts=max_attempts, limit=LEASE_BATCH)
    told = [
        effects.telling(effect, effect["failed_trigger"], error=effect["error"])
        for effect in expired
        if effect["status"] == "dead" and effect["failed_trigger"]
    ]
    requests.accept(connection, told)
    return [effect for effect in expired if effect["status"] == "pending"]


def prune(connection: Connection, *, keep_days: float) -> int:
    """Delete a batch of what is finished and past its keeping time; how many rows went, 0 when none are left."""
    return requests.prune(connection, keep_days=keep_days, limit=PRUNE_BATCH) + effects.prune(
        connection, keep_days=keep_days, limit=PRUNE_BATCH
    )
