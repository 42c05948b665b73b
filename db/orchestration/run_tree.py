"""Reads a run with all its parts: completely the first time, then only what moved since."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import Connection, RowMapping

from interlock.db.connection import one_snapshot
from interlock.db.orchestration import phases, regressions
from interlock.db.schema import in_schema
from interlock.db.statements import queries

sql = queries(__file__)

# A run, as a tree of it begins.
_RUN = in_schema("""
SELECT r.run_id AS id, i.entity_id AS name, i.project, i.version, r.state, r.priority, r.phase_id, i.created_by,
       i.context->>'plan' AS plan, i.context->>'title' AS title, i.context->>'retry_of' AS retry_of, r.created_at,
       r.started_at, r.completed_at, now() AS at
  FROM interlock.runs r JOIN interlock.workflow_instances i ON i.id = r.run_id
 WHERE r.run_id = %(run)s
""")
# A run's workstreams, each with why it last moved.
_WORKSTREAMS = in_schema("""
SELECT w.ws_id AS id, i.context->>'name' AS name, i.entity_id, i.version, i.context->>'title' AS title, w.state,
       w.phase_id, w.is_critical, w.left_out, i.context->>'carried_from' AS carried_from, t.reason, w.created_at,
       w.updated_at, w.completed_at,
       EXISTS (SELECT FROM interlock.workstreams o
                WHERE o.ws_id::text = i.context->>'retry_of' AND o.run_id = w.run_id) AS done_again
  FROM interlock.workstreams w
  JOIN interlock.workflow_instances i ON i.id = w.ws_id
  LEFT JOIN LATERAL (SELECT e.metadata->>'reason' AS reason FROM interlock.workflow_transitions e
                      WHERE e.workflow_id = w.ws_id AND e.seq = i.version) t ON true
 WHERE w.run_id = %(run)s AND (%(ids)s::uuid[] IS NULL OR w.ws_id = ANY(%(ids)s))
 ORDER BY w.ws_id
""")
# A run's patches in the ledger.
_PATCHES = in_schema("""
SELECT p.ledger_id AS id, p.workstream_id, p.task_id, i.entity_id, i.version, p.patch_id, p.state, p.commit_sha,
       p.apply_retries, COALESCE(p.rollback_reason, p.quarantine_reason) AS reason, p.created_at, p.updated_at
  FROM interlock.workstreams w
  JOIN interlock.patch_ledger_entries p ON p.workstream_id = w.ws_id
  JOIN interlock.workflow_instances i ON i.id = p.ledger_id
 WHERE w.run_id = %(run)s AND (%(ids)s::uuid[] IS NULL OR p.ledger_id = ANY(%(ids)s))
 ORDER BY p.ledger_id
""")

# Which queued tasks wait for the breaker of their tool, and how long at most. Breakers move without the tasks: this is
# read anew each time, from the few that turn calls away.
_WAITS = in_schema("""
SELECT t.task_id AS id, t.tool, b.state,
       GREATEST(0, extract(epoch FROM interlock.turned_away_until(b) - now())::double precision) AS seconds
  FROM interlock.workflow_instances i JOIN interlock.circuit_breakers b USING (project)
  JOIN interlock.tasks t ON t.run_id = i.id AND t.state = 'queued' AND t.tool = b.tool_id
 WHERE i.id = %(run)s AND interlock.turned_away_until(b) IS NOT NULL
""")
# The approvals that landings of a run wait for (PHASE-7).
_APPROVALS = in_schema("""
SELECT w.ws_id AS workstream_id, a.id, a.version, a.entity_id, a.created_at,
       ARRAY(SELECT each FROM jsonb_array_elements_text(a.context->'deciders') each
              WHERE each IS DISTINCT FROM a.context->>'author') AS deciders
  FROM interlock.workstreams w
  JOIN interlock.workflow_links l ON l.target_id = w.ws_id AND l.role = 'lands'
  JOIN interlock.workflow_instances a ON a.id = l.source_id AND a.current_state = 'pending'
 WHERE w.run_id = %(run)s AND w.state = 'validating'
 ORDER BY a.id
""")
# What of a run waits for what: tasks for tasks and gates, gates for what they judge and for gates, workstreams for
# workstreams.
_DEPENDENCIES = in_schema("""
SELECT l.source_id, l.role, l.target_id
  FROM (SELECT w.ws_id AS id FROM interlock.workstreams w WHERE w.run_id = %(run)s
        UNION ALL SELECT t.task_id FROM interlock.tasks t WHERE t.run_id = %(run)s
        UNION ALL SELECT g.gate_id FROM interlock.test_gates g WHERE g.run_id = %(run)s) part
  JOIN interlock.workflow_links l ON l.source_id = part.id
 WHERE l.role IN ('depends_on', 'blocked_by_gates', 'gates')
""")

PARTS = {
    "workstream": _WORKSTREAMS,
    "task": sql("tree_tasks"),
    "test_gate": sql("tree_gates"),
    "patch_ledger": _PATCHES,
}


@dataclass(frozen=True, slots=True)
class Read:
    """The rows that were read: the run, its parts by kind, oldest first; all tasks that wait for a breaker, all
    workstreams held by a frozen phase, all regressions, and all approvals that a landing waits for.

    Pass `mark` to the next call of `since`, which then misses nothing that commits after this reading.
    """

    mark: int
    run: RowMapping
    rows: Mapping[str, Sequence[RowMapping]]
    waits: Sequence[RowMapping]
    frozen: Sequence[RowMapping]
    regressions: Sequence[RowMapping]
    approvals: Sequence[RowMapping]
    events: Sequence[RowMapping] = ()


class Dependency(NamedTuple):
    """A link between two parts of a run.

    `role`: `depends_on`; `blocked_by_gates`: a task waits for a gate; `gates`: the source, a task or a
    workstream, is complete only once the gate has passed.
    """

    source_id: UUID
    role: str
    target_id: UUID


def whole(connection: Connection, run_id: UUID) -> Read:
    """Read everything in a run that exists."""
    mark = _mark(connection)
    rows = {kind: _rows(connection, kind, run_id, None) for kind in PARTS}
    return Read(mark, _run(connection, run_id), rows, *_beside(connection, run_id))


def since(connection: Connection, run_id: UUID, seen: int) -> Read:
    """Read what moved in a run since the reading with the mark `seen`. Some rows may be read twice, none is missed."""
    one_snapshot(connection)  # or the run could seem to have ended although its last event was not read yet
    mark = _mark(connection)
    events = connection.exec_driver_sql(sql("tree_events"), {"run": run_id, "since": seen}).mappings().all()
    moved: dict[str, set[UUID]] = {kind: set() for kind in PARTS}
    for event in events:
        moved.get(event["kind"], set()).add(event["id"])
    rows = {kind: _rows(connection, kind, run_id, ids) for kind, ids in moved.items() if ids}
    return Read(mark, _run(connection, run_id), rows, *_beside(connection, run_id), events)


def dependencies(connection: Connection, run_id: UUID) -> list[Dependency]:
    """What of a run waits for what. Overrides and retries change it while a run goes on."""
    return [Dependency(*row) for row in connection.exec_driver_sql(_DEPENDENCIES, {"run": run_id})]


def _mark(connection: Connection) -> int:
    # Taken before the rows are read: every transaction that is still open has an id of at least this.
    return int(connection.exec_driver_sql("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint").scalar_one())


def _run(connection: Connection, run_id: UUID) -> RowMapping:
    return connection.exec_driver_sql(_RUN, {"run": run_id}).mappings().one()


def _beside(
    connection: Connection, run_id: UUID
) -> tuple[Sequence[RowMapping], Sequence[RowMapping], Sequence[RowMapping], Sequence[RowMapping]]:
    waits, approvals = (
        connection.exec_driver_sql(each, {"run": run_id}).mappings().all() for each in (_WAITS, _APPROVALS)
    )
    return waits, phases.frozen_in_run(connection, run_id), regressions.of_run(connection, run_id), approvals


def _rows(connection: Connection, kind: str, run_id: UUID, ids: Collection[UUID] | None) -> Sequence[RowMapping]:
    parameters = {"run": run_id, "ids": None if ids is None else list(ids)}
    return connection.exec_driver_sql(PARTS[kind], parameters).mappings().all()
