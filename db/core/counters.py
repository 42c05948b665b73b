"""Counters kept in PostgreSQL, and gauges read from it: right however many processes there are, and kept over restarts.

What history tells is counted by the relay, in the transaction that moves its cursor. What it does not tell is noted in
the commit in which it happens, and added up by a sweep. Either way each thing counts once.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, text

from db import history
from db.connect import sql
from db.run import execute
from db.stuck import Thresholds

CURSOR = "metrics"  # whoever holds it, the relay or the sweep, is the only one to write counters
FOLD_BATCH = 10_000
COUNTED_AT_MOST = 10_000  # entries that a gauge counts, in each lane: more is a backlog all the same
STATEMENT_SECONDS = 10

FAILED_TRANSITIONS = "interlock_failed_transitions_total"
RETRIES = "interlock_retries_total"
LEASE_EXPIRIES = "interlock_lease_expiries_total"
IDEMPOTENCY_HITS = "interlock_idempotency_hits_total"

# Why a trigger failed to move its instance: what `decide` says, a refused approval, or attempts that are used up.
REASONS = ("no_such_transition", "guard", "already_held", "approval", "dead")

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


def snapshot(
    connection: Connection,
    *,
    version: str,
    sweeps: Mapping[str, float],
    overdue_periods: float,
    overdue_seconds: float,
    stuck: Thresholds,
    destinations: Sequence[str],
    export: str,
) -> dict[Series, float]:
    """Every series as it stands, all of one moment.

    Args:
        connection: a transaction of its own; it is made read-only, and gives up after `STATEMENT_SECONDS`.
        version: of this program, for `interlock_build_info`.
        sweeps: name -> period in seconds.
        overdue_periods: beat counts as dead when a sweep is silent for so many of its periods,
        overdue_seconds: and at least so many seconds.
        stuck: how long is expected.
        destinations: names of the relay's cursors, there or not.
        export: the cursor of the audit's exports.

    Raises:
        DBAPIError: the database is away, or busier than that.
    """
    connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"))
    connection.execute(text(f"SET LOCAL statement_timeout = '{STATEMENT_SECONDS}s'"))
    given: dict[str, Any] = {
        "version": version,
        "sweeps": list(sweeps),
        "periods": list(sweeps.values()),
        "overdue_periods": overdue_periods,
        "overdue_seconds": overdue_seconds,
        "most": COUNTED_AT_MOST,
        "stuck_task": stuck.task,
        "stuck_workstream": stuck.workstream,
        "stuck_general": stuck.general,
        "silent": stuck.silent,
        "destinations": list(destinations),
        "export": export,
    }
    rows = [*connection.exec_driver_sql(sql("counters"), {"reasons": list(REASONS)})]
    rows += connection.exec_driver_sql(sql("gauges"), given)
    found: dict[Series, float] = {}
    for name, labels, value in rows:
        series = (name, tuple(labels))
        found[series] = found.get(series, 0.0) + float(value)
    return found
