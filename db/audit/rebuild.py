"""Rebuild all current state from history alone, in a scratch schema with the same triggers; then compare the two.

The scratch schema has copies of the tables, without their protections, and of the functions that write typed rows from
history. Its transactions are short, so that they do not delay the relay.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from heapq import merge
from itertools import groupby, islice
from operator import itemgetter
from typing import Any

import psycopg
from psycopg.sql import SQL, Identifier
from sqlalchemy import Engine

from interlock.db.audit.snapshot import KEPT, Reading, Snapshot
from interlock.db.schema import SCHEMA, in_schema, lock_number
from interlock.db.statements import queries
from interlock.workflows.errors import InterlockError

sql = queries(__file__)

SCRATCH = f"{SCHEMA}_rebuild"
REBUILD_LOCK = lock_number(0x1E71_0C4E)
ROWS = 2_000  # of one transaction

Session = psycopg.Connection[Any]
Row = Mapping[str, Any]
Keyed = tuple[Any, Row]

Columns = tuple[str, ...]

VALIDATED: Columns = tuple(f"validation_{each}_passed" for each in ("format", "scope", "constraints", "tests"))
QUARANTINE: Columns = ("quarantine_reason", "quarantined_at", "rollback_reason", "rolled_back_at")
ATTEMPT: Columns = ("worker_id", "retry_count", "exit_code", "last_error")
SPAN: Columns = ("started_at", "completed_at")

# What history determines of each table: its key, and the columns that a birth or a move writes and nobody else.
REBUILT_COLUMNS: Mapping[str, tuple[str, Columns]] = {
    "workflow_instances": ("id", ("current_state", "version", "definition_version")),
    "runs": ("run_id", ("state", *SPAN)),
    "workstreams": ("ws_id", ("run_id", "state", "completed_at")),
    "tasks": ("task_id", ("workstream_id", "run_id", "state", *ATTEMPT, *SPAN)),
    "workers": ("worker_id", ("state", "shutdown_at")),
    "patch_ledger_entries": (
        "ledger_id",
        ("state", "apply_retries", "commit_sha", "state_history", *VALIDATED, *QUARANTINE),
    ),
    "test_gates": ("gate_id", ("state", "exit_code", "stdout", "stderr", *SPAN)),
    "circuit_breakers": ("breaker_id", ("state", "opened_at")),
    "supervised_workers": ("id", ("status", "tasks")),
    "jobs": ("id", ("status", *SPAN)),
    "deprecations": (
        "deprecation_id",
        (
            *("state", "type", "version", "kind", "name", "deprecated_by", "reason", "guide", "deprecated_at"),
            *("remove_after", "removal_proposed_by", "removed_by", "removed_at"),
        ),
    ),
    "api_tokens": (
        "token_id",
        (
            *("state", "name", "role", "projects", "secret_sha256", "issued_by", "reason", "issued_at", "expires_at"),
            *("ended_at", "ended_by"),
        ),
    ),
    "operators": ("grant_id", ("state", "name", "granted_by", "reason", "since", "until", "ended_at", "revoked_by")),
}

# Where each scratch instance stands after its last event.
_STATES = in_schema("""
UPDATE interlock.workflow_instances i
   SET current_state = t.to_state, version = t.seq, definition_version = t.definition_version
  FROM (SELECT DISTINCT ON (workflow_id) workflow_id, seq, to_state, definition_version
          FROM interlock.workflow_transitions ORDER BY workflow_id, seq DESC) t
 WHERE t.workflow_id = i.id
""")


class RebuildFault(InterlockError):
    """State could not be rebuilt; the message says why. The scratch schema was dropped."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between current state and history: row, column, the present value, the value by history."""

    table: str
    key: str
    column: str
    current: Any
    rebuilt: Any


@dataclass(slots=True)
class Rebuilt(Reading):
    """How much was replayed, and its differences from the current tables."""

    rows: int = 0
    differences: list[Difference] = field(default_factory=list)

    def note(self, difference: Difference) -> None:
        """Add a difference."""
        self.found += 1
        if len(self.differences) < KEPT:
            self.differences.append(difference)


def rebuild(engine: Engine, progress: Callable[[int], None] = lambda _: None) -> Rebuilt:
    """Replay history, compare the result with the current tables, and drop the scratch schema.

    Args:
        engine: the database; the role must be allowed to create a schema.
        progress: called now and then with the number of events replayed so far.

    Raises:
        RebuildFault: another rebuild is running, or history cannot be replayed; `audit verify` shows why.
        DBAPIError: the database is unreachable.
    """
    done = Rebuilt()
    with _session(engine) as session, Snapshot(engine) as snapshot:
        try:
            _prepare(session)
            done.instances = _copy(snapshot, session, "workflow_instances", sql("rebuild_instances"), lambda _: None)
            events = in_schema("SELECT t.* FROM interlock.workflow_transitions t ORDER BY t.xid, t.position")
            done.transitions = _copy(snapshot, session, "workflow_transitions", events, progress)
            session.execute(_STATES.replace(f"{SCHEMA}.", f"{SCRATCH}.").encode())
        except psycopg.DatabaseError as error:
            raise RebuildFault(
                f"history cannot be replayed: {str(error).splitlines()[0]}. `interlock audit verify` shows where"
            ) from error
        for table in REBUILT_COLUMNS:
            _compare(done, snapshot, session, table)
    return done


@contextmanager
def _session(engine: Engine) -> Iterator[Session]:
    """A session with an empty scratch schema, dropped afterwards; one that a killed rebuild left is dropped first."""
    pooled = engine.raw_connection()
    session: Session = pooled.driver_connection  # type: ignore[assignment] # psycopg is our driver
    pooled.detach()  # plans that it makes are for the scratch schema: nobody gets it after us
    session.rollback()
    session.autocommit = True
    drop = SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(Identifier(SCRATCH))
    try:
        row = session.execute("SELECT pg_try_advisory_lock(%s)", (REBUILD_LOCK,)).fetchone()
        if not row or not row[0]:
            raise RebuildFault("another rebuild is running; wait for it")
        session.execute(drop)
        session.execute(SQL("CREATE SCHEMA {}").format(Identifier(SCRATCH)))
        try:
            yield session
        finally:
            session.execute(drop)
            session.execute("SELECT pg_advisory_unlock(%s)", (REBUILD_LOCK,))  # now, not when the server sees us go
    finally:
        session.close()


def _prepare(session: Session) -> None:
    """Copy the tables without rows, the functions, and the triggers that write typed rows, as they are now."""
    session.execute("SET search_path = ''")
    for (statement,) in session.execute(
        sql("rebuild_shapes").encode(), {"scratch": SCRATCH, "own": rf"\m{SCHEMA}\."}
    ).fetchall():
        session.execute(statement.encode())


def _copy(snapshot: Snapshot, session: Session, table: str, query: str, progress: Callable[[int], None]) -> int:
    """Copy a query's rows into a scratch table, in batches and in order; returns their number."""
    count = 0
    with snapshot.connection().cursor() as reading, reading.copy(f"COPY ({query}) TO STDOUT".encode()) as rows:
        lines = iter(rows)
        while part := list(islice(lines, ROWS)):
            target = SQL("COPY {}.{} FROM STDIN").format(Identifier(SCRATCH), Identifier(table))
            with session.cursor() as writing, writing.copy(target) as into:
                for line in part:
                    into.write(line)
            count += len(part)
            progress(count)
    return count


def _compare(done: Rebuilt, snapshot: Snapshot, session: Session, table: str) -> None:
    """Record where a table's rows differ from the scratch table's; both are read in the order of their keys."""
    key, columns = REBUILT_COLUMNS[table]
    listed = ", ".join(f"'{column}', r.{column}" for column in columns)
    query = f"SELECT r.{key}, jsonb_build_object({listed}) FROM {{}}.{table} r ORDER BY r.{key}"
    current = snapshot.rows(query.format(SCHEMA))
    with session.transaction(), session.cursor(name="rebuilt") as cursor:
        for row, current_row, rebuilt_row in _pair_by_key(
            current, iter(cursor.execute(query.format(SCRATCH).encode()))
        ):
            if current_row is None or rebuilt_row is None:
                done.note(Difference(table, row, "", _presence(current_row), _presence(rebuilt_row)))
                continue
            done.rows += 1
            for column in columns:
                if current_row[column] != rebuilt_row[column]:
                    done.note(Difference(table, row, column, current_row[column], rebuilt_row[column]))


def _presence(row: Row | None) -> str:
    return "no such row" if row is None else "there"


def _pair_by_key(current: Iterator[Keyed], rebuilt: Iterator[Keyed]) -> Iterator[tuple[str, Row | None, Row | None]]:
    """Pair the rows with the same key; both sides are in ascending order."""
    left = ((key, "left", row) for key, row in current)
    right = ((key, "right", row) for key, row in rebuilt)
    for key, pair in groupby(merge(left, right, key=itemgetter(0)), key=itemgetter(0)):
        found = {side: row for _, side, row in pair}
        yield str(key), found.get("left"), found.get("right")
