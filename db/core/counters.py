"""Counters kept in PostgreSQL: right however many processes there are, and kept over restarts.

What history tells is counted by the relay, in the transaction that moves its cursor. What it does not tell is noted in
the commit in which it happens, and added up by a sweep. Either way each thing counts once.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from sqlalchemy import Connection

from interlock.db.connection import sql
from interlock.db.core import history
from interlock.db.statements import execute

CURSOR = "metrics"  # whoever holds it, the relay or the sweep, is the only one to write counters
FOLD_BATCH = 10_000

FAILED_TRANSITIONS = "interlock_failed_transitions_total"
RETRIES = "interlock_retries_total"
LEASE_EXPIRIES = "interlock_lease_expiries_total"
IDEMPOTENCY_HITS = "interlock_idempotency_hits_total"

# Upper bounds of the time spent in a state, in seconds: from a move of the same commit to a fortnight of review.
BOUNDS = (0.01, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 14_400.0, 86_400.0, 604_800.0)
BOUND_NAMES = (*map(repr, BOUNDS), "+Inf")

Series = tuple[str, tuple[str, ...]]
"""A metric's name (with `_bucket` or `_sum` where it is a histogram's) and its labels' values in their order."""


def note(connection: Connection, happened: Mapping[Series, float]) -> None:
    """Add to counters, in the caller's transaction; nothing is done where nothing happened.

    Args:
        connection: the transaction in which it happened.
        happened: by how much each series grows.
    """
    rows = [{"name": name, "labels": labels, "value": value} for (name, labels), value in happened.items()]
    execute(connection, "note", rows)


def note_each(connection: Connection, name: str, labels: Iterable[tuple[str, ...]]) -> None:
    """Add 1 to a counter for each of these labels, in the caller's transaction."""
    note(connection, Counter((name, each) for each in labels))


def count(connection: Connection, event_ids: Sequence[UUID]) -> None:
    """Count events: moves, populations of states, time spent in them, overrides. For the holder of the cursor only."""
    given = {"ids": list(event_ids), "bounds": list(BOUNDS), "bound_names": list(BOUND_NAMES)}
    connection.exec_driver_sql(sql("count_events"), given)


def fold(connection: Connection) -> int:
    """Add up a batch of what was noted; how many notes that were."""
    history.cursor(connection, CURSOR)  # locked: the relay writes the same rows
    return int(connection.exec_driver_sql(sql("fold_deltas"), {"limit": FOLD_BATCH}).scalar_one())
