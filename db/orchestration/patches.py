"""Patches and their ledger entries, as effects and operators need them."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, TypedDict, cast
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Uuid, or_, select
from sqlalchemy import cast as sql_cast

from interlock.db.core.instances import find as find_instance
from interlock.db.core.instances import newest
from interlock.db.core.portions import NEWEST, Portion
from interlock.db.fast_path import rows
from interlock.db.schema import in_schema
from interlock.db.statements import among, matching, one, queries
from interlock.db.tables.core import instances
from interlock.db.tables.orchestration import patch_ledger_entries as entries
from interlock.db.tables.orchestration import tasks, workstreams

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

_DIFFS = in_schema("""
SELECT p.ledger_id, i.entity_id, p.state, left(b.body, %(length)s) AS body, length(b.body) AS length
  FROM interlock.patch_ledger_entries p
  JOIN interlock.patches b USING (patch_id)
  JOIN interlock.workflow_instances i ON i.id = p.ledger_id
 WHERE (p.ledger_id = %(id)s OR p.workstream_id = %(id)s OR p.task_id = %(id)s)
   AND (p.ledger_id = %(id)s OR p.state NOT IN ('quarantined', 'dropped', 'rolled_back'))
 ORDER BY p.ledger_id LIMIT %(limit)s
""")


class LedgerOfTask(TypedDict):
    """One of a task's ledger entries."""

    id: str
    state: str


class PatchTask(TypedDict):
    """A task, as its ledger entries need it; `gates` judge it now."""

    task_id: UUID
    workstream_id: UUID
    run_id: UUID
    entity_id: str
    project: str
    context: dict[str, Any]
    gates: list[str]
    ledgers: list[LedgerOfTask]


class PatchEntry(TypedDict):
    """A ledger entry: a row of `patch_ledger_entries`, and what `patch_entry.sql` adds."""

    ledger_id: UUID
    patch_id: str
    workstream_id: UUID
    run_id: UUID
    task_id: UUID | None
    phase_id: str
    state: str
    validation_format_passed: bool
    validation_scope_passed: bool
    validation_constraints_passed: bool
    validation_tests_passed: bool
    apply_retries: int
    commit_sha: str | None
    quarantine_reason: str | None
    quarantine_metadata: dict[str, Any] | None
    quarantined_at: datetime | None
    rollback_reason: str | None
    rollback_compensation: dict[str, Any] | None
    rolled_back_at: datetime | None
    state_history: list[dict[str, Any]]
    created_at: datetime
    updated_at: datetime
    metadata: dict[str, Any]
    entity_id: str
    project: str
    context: dict[str, Any]
    body: str
    created_by: str
    run: str
    task: str | None
    requested_by: str | None
    requested_because: str | None


class CommittedPatch(TypedDict):
    """A ledger entry in state `committed`; `workstream` is the name of its workstream."""

    ledger_id: UUID
    entity_id: str
    commit_sha: str
    workstream_id: UUID
    workstream: str


class ListedPatch(TypedDict):
    """A ledger entry in a list."""

    entity_id: str
    project: str
    ledger_id: UUID
    patch_id: str
    state: str
    commit_sha: str | None
    apply_retries: int
    quarantine_reason: str | None
    rollback_reason: str | None
    updated_at: datetime


class PatchDiff(TypedDict):
    """A ledger entry's patch: its text, and the length that it has in full."""

    ledger_id: UUID
    entity_id: str
    state: str
    body: str
    length: int


class GateOfRun(TypedDict):
    """A gate of a run; `name` is the plan's."""

    id: UUID
    name: str
    gate_type: str
    state: str
    workstream_id: UUID | None


def of_task(connection: Connection, task_id: UUID) -> PatchTask:
    """A task with the data for its ledger entry, and its present `ledgers`, oldest first.

    Raises:
        UnknownInstance: no task has that id.
    """
    return cast(PatchTask, one(connection, sql("patch_of_task"), task_id, "task"))


def lock_task(connection: Connection, task_id: UUID) -> None:
    """Wait until nobody else puts a patch of this task into the ledger, and keep others waiting until the commit."""
    connection.execute(select(tasks.c.task_id).where(tasks.c.task_id == task_id).with_for_update(key_share=True))


def entry(connection: Connection, ledger_id: UUID) -> PatchEntry:
    """A ledger entry with its patch's text, its names and its context.

    Raises:
        UnknownInstance: no entry has that id.
    """
    return cast(PatchEntry, one(connection, sql("patch_entry"), ledger_id, "patch ledger entry"))


def find(connection: Connection, ref: str | UUID, project: str) -> PatchEntry:
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
) -> list[CommittedPatch]:
    """A run's or workstream's committed entries, in the order of their commits.

    A run's are also those of the workstreams that it carries over from an earlier run.
    """
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
        .where(or_(entries.c.run_id == run, _carried_by(run)) if run else entries.c.workstream_id == workstream)
        .order_by(entries.c.updated_at)
    )
    return [cast(CommittedPatch, dict(row)) for row in connection.execute(query).mappings()]


def _carried_by(run: UUID) -> ColumnElement[bool]:
    """Whether an entry is of a workstream that a run carries over."""
    of = instances.alias()
    carried = select(sql_cast(of.c.context["carried_from"].astext, Uuid)).join(
        workstreams, workstreams.c.ws_id == of.c.id
    )
    return entries.c.workstream_id.in_(carried.where(workstreams.c.run_id == run))


def page(
    connection: Connection,
    portion: Portion = NEWEST,
    *,
    run: UUID | None = None,
    states: Iterable[str] = (),
) -> list[ListedPatch]:
    """The newest ledger entries, filtered by run and states if given."""
    query = select(
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
    query = matching(newest(query, entries.c.ledger_id, portion), (entries.c.run_id, run))
    if wanted := list(states):
        query = query.where(among(entries.c.state, wanted))
    return [cast(ListedPatch, dict(row)) for row in connection.execute(query).mappings()]


def diffs(connection: Connection, of: UUID, *, limit: int = 50, length: int = 200_000) -> list[PatchDiff]:
    """The patches of a workstream, a task or a ledger entry that may land or have landed, in their order.

    Args:
        connection: any.
        of: its id.
        limit: the most patches.
        length: of each, the most characters.
    """
    return [cast(PatchDiff, row) for row in rows(connection, _DIFFS, {"id": of, "limit": limit, "length": length})]


def gates_of_run(connection: Connection, run_id: UUID) -> list[GateOfRun]:
    """Every gate of a run, each only in its newest rerun."""
    return cast(list[GateOfRun], rows(connection, _GATES_OF_RUN, {"run": run_id}))
