"""The repository and directory of a workstream, and the workers that still use them."""

from typing import Any, TypedDict, cast
from uuid import UUID

from sqlalchemy import Connection

from interlock.db.fast_path import rows
from interlock.db.schema import in_schema
from interlock.db.statements import one, queries

sql = queries(__file__)

# Whoever may still write into a workstream's worktree: workers with a task of it, gates that run.
_AT_WORK = in_schema("""
SELECT (SELECT count(*) FROM interlock.task_claims c JOIN interlock.tasks t ON t.task_id = c.task_id
         WHERE t.workstream_id = %(id)s AND c.run_id = t.run_id AND c.ended_at IS NULL)
     + (SELECT count(*) FROM interlock.effects e JOIN interlock.test_gates g ON g.gate_id = e.workflow_id
         WHERE g.workstream_id = %(id)s AND e.status = 'leased' AND e.lease_until > now())
""")


class WorkplaceRow(TypedDict):
    """A workstream with its run, and what the run's plan says of where the work is done; None without a plan."""

    workstream_id: UUID
    state: str
    version: int
    entity_id: str
    workstream: str
    done_again: bool
    run_id: UUID
    run: str
    directory: str | None
    repository: dict[str, Any] | None
    frozen: bool
    phase_id: str
    phase: dict[str, Any] | None
    gates: list[dict[str, Any]] | None


class RemainsRow(TypedDict):
    """What a failed or cancelled workstream leaves: its last event, and its failed parts."""

    workstream: str
    run: str
    state: str
    last_event: dict[str, Any] | None
    failed_tasks: list[dict[str, Any]]
    quarantined_patches: list[dict[str, Any]]
    failed_gates: list[dict[str, Any]]


def of_workstream(connection: Connection, workstream_id: UUID) -> WorkplaceRow:
    """A workstream with its run and its plan's repository and directory.

    Raises:
        UnknownInstance: no workstream has that id.
    """
    return cast(WorkplaceRow, one(connection, sql("workplace"), workstream_id, "workstream"))


def of_gate(connection: Connection, gate_id: UUID) -> UUID | None:
    """The workstream of a gate, if it has one."""
    query = in_schema("SELECT workstream_id FROM interlock.test_gates WHERE gate_id = %s")
    found: UUID | None = connection.exec_driver_sql(query, (gate_id,)).scalar_one()
    return found


def state(connection: Connection, workstream_id: UUID) -> str:
    """A workstream's state."""
    query = in_schema("SELECT state FROM interlock.workstreams WHERE ws_id = %s")
    return str(connection.exec_driver_sql(query, (workstream_id,)).scalar_one())


def at_work(connection: Connection, workstream_id: UUID) -> int:
    """The number of workers that still hold a task or run a gate of a workstream."""
    return int(connection.exec_driver_sql(_AT_WORK, {"id": workstream_id}).scalar_one())


def remains(connection: Connection, workstream_id: UUID) -> RemainsRow:
    """The data to archive of a failed or cancelled workstream."""
    (row,) = rows(connection, sql("remains"), {"id": workstream_id})
    return cast(RemainsRow, row)
