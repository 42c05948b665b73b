"""The results of completed tasks, which history has in the event by which their workers reported."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

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
