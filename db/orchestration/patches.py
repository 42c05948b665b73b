"""Patches and their ledger entries: what effects need of them, and what operators look at."""

from collections.abc import Iterable, Sequence
from uuid import UUID

from sqlalchemy import Connection, RowMapping, select

from interlock.db.connection import sql
from interlock.db.core import instances as named
from interlock.db.statements import among
from interlock.db.tables import patch_ledger_entries as entries
from interlock.db.tables.core import instances
from interlock.workflows.errors import BadInput, UnknownInstance

OVER = ("quarantined", "dropped", "rolled_back")  # nothing more comes of an entry that is in one of these


def of_task(connection: Connection, task_id: UUID) -> RowMapping:
    """A task with what its ledger entry is to know, and the `ledgers` it has: [{id, state}], the oldest first.

    Raises:
        UnknownInstance: there is no such task.
    """
    found = connection.exec_driver_sql(sql("patch_of_task"), {"id": task_id}).mappings().first()
    if found is None:
        raise UnknownInstance(f"no task has the id {task_id}")
    return found


def entry(connection: Connection, ledger_id: UUID) -> RowMapping:
    """A ledger entry with its patch's text, its names and its context.

    Raises:
        UnknownInstance: there is no such entry.
    """
    found = connection.exec_driver_sql(sql("patch_entry"), {"id": ledger_id}).mappings().first()
    if found is None:
        raise UnknownInstance(f"no patch ledger entry has the id {ledger_id}")
    return found


def find(connection: Connection, ref: str) -> RowMapping:
    """The ledger entry that a REF names, as `entry` has it.

    Raises:
        UnknownInstance, AmbiguousInstance: none answers to it, or several do.
        BadInput: it is something else.
    """
    found = named.find(connection, ref)
    if found["workflow_type"] != "patch_ledger":
        name = f"{found['workflow_type']}/{found['entity_id']}"
        raise BadInput(f"{name} is not a patch; `interlock patch list` shows those that exist")
    return entry(connection, found["id"])


def state_of(connection: Connection, ledger_id: UUID) -> str | None:
    """In which state an entry is; None where there is none."""
    return connection.execute(select(entries.c.state).where(entries.c.ledger_id == ledger_id)).scalar()


def uncommitted(connection: Connection, workstream_id: UUID) -> Sequence[str]:
    """Entry ids of a workstream's patches that may still be committed."""
    query = (
        select(instances.c.entity_id)
        .join(entries, entries.c.ledger_id == instances.c.id)
        .where(entries.c.workstream_id == workstream_id, entries.c.state.not_in([*OVER, "committed"]))
    )
    return connection.execute(query).scalars().all()


def committed(
    connection: Connection, *, run: UUID | None = None, workstream: UUID | None = None
) -> Sequence[RowMapping]:
    """ledger_id, entity_id, commit_sha, workstream_id, workstream (its name) of what is committed of one of the two."""
    home = instances.alias()
    query = (
        select(
            entries.c.ledger_id,
            instances.c.entity_id,
            entries.c.commit_sha,
            entries.c.workstream_id,
            home.c.entity_id.label("workstream"),
        )
        .join(instances, instances.c.id == entries.c.ledger_id)
        .join(home, home.c.id == entries.c.workstream_id)
        .where(entries.c.state == "committed")
        .where(entries.c.run_id == run if run else entries.c.workstream_id == workstream)
        .order_by(entries.c.updated_at)
    )
    return connection.execute(query).mappings().all()


def page(
    connection: Connection, *, run: UUID | None = None, states: Iterable[str] = (), limit: int = 100
) -> Sequence[RowMapping]:
    """The newest ledger entries, of a run and in the states given, if any."""
    query = (
        select(
            instances.c.entity_id,
            entries.c.ledger_id,
            entries.c.patch_id,
            entries.c.state,
            entries.c.commit_sha,
            entries.c.apply_retries,
            entries.c.quarantine_reason,
            entries.c.rollback_reason,
            entries.c.updated_at,
        )
        .join(instances, instances.c.id == entries.c.ledger_id)
        .order_by(entries.c.created_at.desc(), entries.c.ledger_id.desc())
        .limit(limit)
    )
    if run:
        query = query.where(entries.c.run_id == run)
    if wanted := list(states):
        query = query.where(among(entries.c.state, wanted))
    return connection.execute(query).mappings().all()


def gates_of_run(connection: Connection, run_id: UUID) -> Sequence[RowMapping]:
    """Every gate of a run, each only in its newest try: `name`, `gate_type`, `state`, `workstream_id`, `context`."""
    return connection.exec_driver_sql(sql("gates_of_run"), {"run": run_id}).mappings().all()
