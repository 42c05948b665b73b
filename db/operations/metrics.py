"""Reads all metrics, gauges and counters, from one snapshot of PostgreSQL."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, text

from interlock.db.connection import one_snapshot
from interlock.db.core.counters import Series
from interlock.db.operations.stuck import Thresholds
from interlock.db.statements import queries

sql = queries(__file__)

COUNTED_AT_MOST = 10_000  # entries that a gauge counts, in each partition: more is a backlog all the same
STATEMENT_SECONDS = 10

# Why a trigger did not move its instance: a reason of `decide`, a refused approval, or used-up attempts.
REASONS = (
    "no_such_transition",
    "guard",
    "wrong_data",
    "already_held",
    "too_few_deciders",
    "version_conflict",
    "approval",
    "dead",
)


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
    """Every series, all from one snapshot.

    Args:
        connection: a new transaction; it is made read-only, and each statement ends after `STATEMENT_SECONDS`.
        version: of this program, for `interlock_build_info`.
        sweeps: name -> period in seconds.
        overdue_periods: beat counts as dead once a sweep has not run for this many of its periods,
        overdue_seconds: and for at least this many seconds.
        stuck: the expected times in a state.
        destinations: names of the relay's cursors, whether they exist or not.
        export: the name of the audit exports' cursor.

    Raises:
        DBAPIError: the database is unreachable, or too slow.
    """
    one_snapshot(connection)
    connection.execute(text(f"SET LOCAL statement_timeout = '{STATEMENT_SECONDS}s'"))
    parameters: dict[str, Any] = {
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
    rows += connection.exec_driver_sql(sql("gauges"), parameters)
    found: dict[Series, float] = {}
    for name, labels, value in rows:
        series = (name, tuple(labels))
        found[series] = found.get(series, 0.0) + float(value)
    return found
