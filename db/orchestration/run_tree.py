"""A run and all in it, read whole once and then only what moved since."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, RowMapping

from interlock.db.connection import one_snapshot, sql

PARTS = {
    "workstream": "tree_workstreams",
    "task": "tree_tasks",
    "test_gate": "tree_gates",
    "patch_ledger": "tree_patches",
}


@dataclass(frozen=True, slots=True)
class Read:
    """What was read: the run, and by kind the rows of what is in it, oldest first.

    `mark` goes with the next call of `since`: nothing that commits after this reading escapes it.
    """

    mark: int
    run: RowMapping
    rows: Mapping[str, Sequence[RowMapping]]
    events: Sequence[RowMapping] = ()


def whole(connection: Connection, run_id: UUID) -> Read:
    """Everything in a run that exists."""
    mark = _mark(connection)
    rows = {kind: _rows(connection, kind, run_id, None) for kind in PARTS}
    return Read(mark, _run(connection, run_id), rows)


def since(connection: Connection, run_id: UUID, seen: int) -> Read:
    """What moved in a run since a reading with the mark `seen`: a few rows too many rather than one too few."""
    one_snapshot(connection)  # or the run could seem to have ended although its last event was not read yet
    mark = _mark(connection)
    events = connection.exec_driver_sql(sql("tree_events"), {"run": run_id, "since": seen}).mappings().all()
    moved: dict[str, set[UUID]] = {kind: set() for kind in PARTS}
    for event in events:
        moved.get(event["kind"], set()).add(event["id"])
    rows = {kind: _rows(connection, kind, run_id, ids) for kind, ids in moved.items() if ids}
    return Read(mark, _run(connection, run_id), rows, events)


def _mark(connection: Connection) -> int:
    # Taken before the rows are read: whatever is not over yet has a transaction id from here on.
    return int(connection.exec_driver_sql("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint").scalar_one())


def _run(connection: Connection, run_id: UUID) -> RowMapping:
    return connection.exec_driver_sql(sql("tree_run"), {"run": run_id}).mappings().one()


def _rows(connection: Connection, kind: str, run_id: UUID, ids: Collection[UUID] | None) -> Sequence[RowMapping]:
    given = {"run": run_id, "ids": None if ids is None else list(ids)}
    return connection.exec_driver_sql(sql(PARTS[kind]), given).mappings().all()
