"""Counters stored in PostgreSQL, so that they are correct for any number of processes and survive restarts.

The relay counts events of history, in the transaction that moves its cursor. Occurrences that are not in history are
inserted as rows in the commit in which they happen, and added up by a sweep. Either way each counts once.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from sqlalchemy import Connection

from interlock.db.core import history
from interlock.db.schema import in_schema
from interlock.db.statements import execute, queries

sql = queries(__file__)

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

# Note what history does not record, in the commit in which it happened.
_NOTE = in_schema("""
INSERT INTO interlock.metric_deltas (name, labels, value)
SELECT n.name, ARRAY(SELECT jsonb_array_elements_text(n.labels)), n.value
  FROM json_to_recordset(%(rows)s::json) AS n (name text, labels jsonb, value double precision)
""")


def note(connection: Connection, happened: Mapping[Series, float]) -> None:
    """Add to counters in the caller's transaction. Does nothing if there is nothing to add.

    Args:
        connection: the transaction of the occurrence.
        happened: the amount to add to each series.
    """
    rows = [{"name": name, "labels": labels, "value": value} for (name, labels), value in happened.items()]
    execute(connection, _NOTE, rows)


def note_each(connection: Connection, name: str, labels: Iterable[tuple[str, ...]]) -> None:
    """Add 1 to a counter for each of these labels, in the caller's transaction."""
    note(connection, Counter((name, each) for each in labels))


def count(connection: Connection, event_ids: Sequence[UUID]) -> None:
    """Count events: moves, instances by state, time spent in states, overrides. Only for the cursor's holder."""
    parameters = {"ids": list(event_ids), "bounds": list(BOUNDS), "bound_names": list(BOUND_NAMES)}
    connection.exec_driver_sql(sql("count_events"), parameters)


def fold(connection: Connection) -> int:
    """Add a batch of recorded occurrences to the totals; returns the number of rows."""
    history.cursor(connection, CURSOR)  # locked: the relay writes the same rows
    return int(connection.exec_driver_sql(sql("fold_deltas"), {"limit": FOLD_BATCH}).scalar_one())
