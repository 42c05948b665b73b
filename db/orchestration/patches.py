"""Patches and their ledger entries, as effects and operators need them."""

from collections.abc import Iterable, Sequence
from uuid import UUID

from sqlalchemy import Connection, RowMapping, select

from interlock.db.core.instances import find as find_instance
from interlock.db.schema import in_schema
from interlock.db.statements import among, matching, one, queries
from interlock.db.tables.core import instances
from interlock.db.tables.orchestration import patch_ledger_entries as entries
from interlock.db.tables.orchestration import tasks

sql = queries(__file__)

OVER = ("quarantined", "dropped", "rolled_back")  # nothing more comes of an entry that is in one of these

# The gates of a run; of one that was run again only the newest.
_GATES_OF_RUN = in_schema("""
SELECT g.gate_id AS id, COALESCE(i.context->>'name', i.entity_id) AS name, g.gate_type, g.state, g.workstream_id
  FROM interlock.test_gates g JOIN interlock.workflow_instances i ON i.id = g.gate_id
 WHERE g.run_id = %(run)s
   AND NOT EXISTS (SELECT FROM interlock.workflow_links l WHERE l.target_id = g.gate_id AND l.role = 'retry_of')
 ORDER BY i.id
""")
# The gates at the end of a patch's workstream; of one that was run again only the newest.
_GATES_AT_END = in_schema("""
SELECT i.entity_id
  FROM interlock.patch_ledger_entries p
  JOIN interlock.workflow_links l ON l.source_id = p.workstream_id AND l.role = 'gates'
  JOIN interlock.workflow_instances i ON i.id = l.target_id
 WHERE p.ledger_id = %(patch)s
 ORDER BY i.entity_id
""")


def of_task(connection: Connection, task_id: UUID) -> RowMapping:
    """A task with the data for its ledger entry, and its present `ledgers`: [{id, state}], oldest first.

    Raises:
        UnknownInstance: no task has that id.
    """
    return one(connection, sql("patch_of_task"), task_id, "task")


def lock_task(connection: Connection, task_id: UUID) -> None:
    """Wait until nobody else puts a patch of this task into the ledger, and keep others waiting until the commit."""
    connection.execute(select(tasks.c.task_id).where(tasks.c.task_id == task_id).with_for_update(key_share=True))


def entry(connection: Connection, ledger_id: UUID) -> RowMapping:
    """A ledger entry with its patch's text, its names and its context.

    Raises:
        UnknownInstance: no entry has that id.
    """
    return one(connection, sql("patch_entry"), ledger_id, "patch ledger entry")


def find(connection: Connection, ref: str | UUID, project: str) -> RowMapping:
    """Find a ledger entry by a REF; the row is as in `entry`. Raises as `db.core.instances.find`."""
    return entry(connection, find_instance(connection, ref, project, "patch_ledger")["id"])


def state_of(connection: Connection, ledger_id: UUID) -> str | None:
    """An entry's state; None if there is no such entry."""
    return connection.execute(select(entries.c.state).where(entries.c.ledger_id == ledger_id)).scalar()


def uncommitted(connection: Connection, workstream_id: UUID) -> Sequence[str]:
    """The ids of a workstream's entries that may still be committed."""
    query = (
        select(instances.c.entity_id)
        .join(entries, entries.c.ledger_id == instances.c.id)
        .where(entries.c.workstream_id == workstream_id, entries.c.state.not_in([*OVER, "committed"]))
    )
    return connection.execute(query).scalars().all()


def committed(
    connection: Connection, *, run: UUID | None = None, workstream: UUID | None = None
) -> Sequence[RowMapping]:
    """ledger_id, entity_id, commit_sha, workstream_id, workstream (its name) of a run's or workstream's commits."""
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
    connection: Connection,
    *,
    project: str | None = None,
    run: UUID | None = None,
    states: Iterable[str] = (),
    limit: int = 100,
) -> Sequence[RowMapping]:
    """The newest ledger entries, filtered by project, run and states if given."""
    query = (
        select(
            instances.c.entity_id,
            instances.c.project,
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
    query = matching(query, (instances.c.project, project), (entries.c.run_id, run))
    if wanted := list(states):
        query = query.where(among(entries.c.state, wanted))
    return connection.execute(query).mappings().all()


def gates_at_end(connection: Connection, ledger_id: UUID) -> list[str]:
    """The names of the gates that judge the workstream of a ledger entry as a whole."""
    return list(connection.exec_driver_sql(_GATES_AT_END, {"patch": ledger_id}).scalars())


def gates_of_run(connection: Connection, run_id: UUID) -> Sequence[RowMapping]:
    """Every gate of a run, each only in its newest rerun: `name`, `gate_type`, `state`, `workstream_id`, `context`."""
    return connection.exec_driver_sql(_GATES_OF_RUN, {"run": run_id}).mappings().all()
