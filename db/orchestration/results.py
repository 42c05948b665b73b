"""The results of completed tasks, which history has in the event by which their workers reported."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, RowMapping

from interlock.db.schema import in_schema

# The result of a task, or of the one that took its place in the run when an operator reset it. A task of an earlier run
# may be in the archive.
_RESULT = in_schema("""
WITH RECURSIVE place AS (
    SELECT i.id FROM interlock.every_instance i
     WHERE i.id = %(task)s AND i.project = %(project)s AND i.workflow_type = 'task'
    UNION
    SELECT r.source_id
      FROM place p
      JOIN interlock.workflow_links r ON r.target_id = p.id AND r.role = 'retry_of'
      JOIN interlock.tasks t ON t.task_id = r.source_id
      JOIN interlock.tasks old ON old.task_id = p.id AND old.run_id = t.run_id
)
SELECT i.entity_id AS task, i.current_state AS state, e.metadata ? 'result' AS given, e.metadata->'result' AS value
  FROM place p
  JOIN interlock.every_instance i ON i.id = p.id
  LEFT JOIN LATERAL (SELECT t.metadata FROM interlock.every_transition t
                      WHERE t.workflow_id = p.id AND t.trigger = 'execution_completed' AND i.current_state = 'completed'
                      ORDER BY t.seq DESC LIMIT 1) e ON true
 ORDER BY i.current_state = 'completed' DESC, p.id DESC
 LIMIT 1
""")


# The results of a run's tasks, a page of them; those that others took the place of are left out.
_OF_RUN = in_schema("""
SELECT t.task_id AS id, i.context->>'name' AS task, t.state, t.exit_code, t.completed_at, e.metadata->'result' AS result
  FROM interlock.tasks t
  JOIN interlock.workflow_instances i ON i.id = t.task_id
  LEFT JOIN LATERAL (SELECT m.metadata FROM interlock.workflow_transitions m
                      WHERE m.workflow_id = t.task_id AND m.trigger = 'execution_completed' AND t.state = 'completed'
                      ORDER BY m.seq DESC LIMIT 1) e ON true
 WHERE t.run_id = %(run)s AND NOT t.left_out AND t.completed_at IS NOT NULL
   AND (%(after)s::uuid IS NULL OR t.task_id > %(after)s)
 ORDER BY t.task_id
 LIMIT %(limit)s
""")


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The result of a task.

    Attributes:
        task: its entity id.
        state: its state.
        given: whether it is completed and gave a result.
        value: the result; None also if there is none.
    """

    task: str
    state: str
    given: bool
    value: Any


def of_task(connection: Connection, task_id: UUID, project: str) -> TaskResult | None:
    """The result of a task of a project, live or archived; None if the project has no such task."""
    row = connection.exec_driver_sql(_RESULT, {"task": task_id, "project": project}).mappings().first()
    return TaskResult(row["task"], row["state"], bool(row["given"]), row["value"]) if row else None


def of_run(connection: Connection, run_id: UUID, *, after: UUID | None, limit: int) -> Sequence[RowMapping]:
    """The ended tasks of a live run, in the order of their ids: `id`, `task`, `state`, `exit_code`, `completed_at`,
    `result` (None also if it gave none).

    Args:
        connection: any.
        run_id: the run.
        after: only those after this one; None: from the first on.
        limit: the most to return.
    """
    parameters = {"run": run_id, "after": after, "limit": limit}
    return connection.exec_driver_sql(_OF_RUN, parameters).mappings().all()
