"""Phases: which a project has, and which of them are frozen, why and since when (docs/spec/phase.md)."""

from collections.abc import Sequence
from datetime import datetime
from typing import TypedDict, cast
from uuid import UUID

from sqlalchemy import Connection, RowMapping

from interlock.db.schema import in_schema

_LISTED = in_schema("""
SELECT i.id, i.project, i.entity_id AS phase, i.current_state AS state, i.version, t.triggered_by AS by,
       COALESCE(t.created_at, i.created_at) AS since, t.metadata->>'reason' AS reason,
       (SELECT count(*) FROM interlock.workstreams w WHERE w.phase = i.id AND w.completed_at IS NULL) AS workstreams
  FROM interlock.workflow_instances i
  LEFT JOIN interlock.workflow_transitions t ON t.workflow_id = i.id AND t.seq = i.version
 WHERE i.workflow_type = 'phase' AND i.project = COALESCE(%(project)s, i.project)
 ORDER BY i.project, i.entity_id
""")
# A workstream's phase has its moves in history; the last one says why it is frozen, and since when.
_FROZEN = in_schema("""
SELECT w.ws_id AS workstream_id, k.task_id, i.project, w.phase_id AS phase, i.version, t.metadata->>'reason' AS reason,
       COALESCE(t.created_at, i.created_at) AS since, t.triggered_by AS by
  FROM interlock.workstreams w
  JOIN interlock.workflow_instances i ON i.id = w.phase AND i.current_state <> 'open'
  LEFT JOIN interlock.workflow_transitions t ON t.workflow_id = i.id AND t.seq = i.version
  LEFT JOIN interlock.tasks k ON k.workstream_id = w.ws_id AND k.task_id = ANY(%(tasks)s)
 WHERE {which} AND w.completed_at IS NULL
""")
_FROZEN_OF_RUN = _FROZEN.format(which="w.run_id = %(run)s")
_FROZEN_OF = _FROZEN.format(
    which="(w.ws_id = ANY(%(workstreams)s) OR w.ws_id IN"
    " (SELECT workstream_id FROM interlock.tasks WHERE task_id = ANY(%(tasks)s)))"
)
_HELD = in_schema("""
SELECT FROM interlock.workflow_instances i
 WHERE i.id = (SELECT w.phase FROM interlock.workstreams w WHERE w.ws_id = %(workstream)s) FOR SHARE
""")


class PhaseRow(TypedDict):
    """A phase. `by`, `since`, `reason`: of its last move; `workstreams`: how many of its workstreams have not ended."""

    id: UUID
    project: str
    phase: str
    state: str
    version: int
    by: str | None
    since: datetime
    reason: str | None
    workstreams: int


def listed(connection: Connection, *, project: str | None = None) -> Sequence[PhaseRow]:
    """The phases of one project or all."""
    return cast(Sequence[PhaseRow], connection.exec_driver_sql(_LISTED, {"project": project}).mappings().all())


def frozen_in_run(connection: Connection, run_id: UUID) -> Sequence[RowMapping]:
    """A run's workstreams in a frozen phase: workstream_id, project, phase, its version, reason, since, by."""
    return connection.exec_driver_sql(_FROZEN_OF_RUN, {"run": run_id, "tasks": []}).mappings().all()


def holding(connection: Connection, tasks: Sequence[UUID], workstreams: Sequence[UUID]) -> dict[UUID, RowMapping]:
    """Of these tasks and workstreams, those in a frozen phase -> a row as of `frozen_in_run`."""
    given = {"tasks": list(tasks), "workstreams": list(workstreams)}
    rows = connection.exec_driver_sql(_FROZEN_OF, given).mappings().all()
    return {row["workstream_id"]: row for row in rows} | {row["task_id"]: row for row in rows if row["task_id"]}


def hold(connection: Connection, workstream_id: UUID) -> None:
    """Keep the phase of a workstream from moving until this transaction commits (PHASE-6)."""
    connection.exec_driver_sql(_HELD, {"workstream": workstream_id})
