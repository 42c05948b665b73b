"""Where the work of a workstream is done, and who is still at it."""

from uuid import UUID

from sqlalchemy import Connection, RowMapping

from interlock.db.connection import sql
from interlock.db.schema import in_schema
from interlock.workflows.errors import UnknownInstance


def of_workstream(connection: Connection, workstream_id: UUID) -> RowMapping:
    """A workstream with its run and its plan's `repository` (JSON, or None) and `directory` (None without a plan).

    Raises:
        UnknownInstance: there is no such workstream.
    """
    found = connection.exec_driver_sql(sql("workplace"), {"id": workstream_id}).mappings().first()
    if found is None:
        raise UnknownInstance(f"no workstream has the id {workstream_id}")
    return found


def of_gate(connection: Connection, gate_id: UUID) -> UUID | None:
    """The workstream of a gate, if it has one."""
    query = in_schema("SELECT workstream_id FROM interlock.test_gates WHERE gate_id = %s")
    found: UUID | None = connection.exec_driver_sql(query, (gate_id,)).scalar_one()
    return found


def state(connection: Connection, workstream_id: UUID) -> str:
    """In which state a workstream is."""
    query = in_schema("SELECT state FROM interlock.workstreams WHERE ws_id = %s")
    return str(connection.exec_driver_sql(query, (workstream_id,)).scalar_one())


def at_work(connection: Connection, workstream_id: UUID) -> int:
    """How many workers still hold a task of a workstream, or run a gate of it."""
    return int(connection.exec_driver_sql(sql("at_work"), {"id": workstream_id}).scalar_one())


def remains(connection: Connection, workstream_id: UUID) -> RowMapping:
    """What to write down of a workstream that failed or was cancelled: its last event, and what failed of it."""
    return connection.exec_driver_sql(sql("remains"), {"id": workstream_id}).mappings().one()
