"""What overrides read of a run, and what they change beside states: links between instances, and counts.

The caller must hold the locks of the run and of every partition, so that nobody else moves or counts.
"""

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, RowMapping, select, update

from interlock.db.orchestration import scheduling
from interlock.db.schema import in_schema
from interlock.db.statements import queries
from interlock.db.tables.core import instances
from interlock.db.tables.orchestration import tasks, test_gates, workstreams
from interlock.workflows.scheduling import next_trigger

sql = queries(__file__)

# A gate as an operator has to see it: where it stands, and what was made in its place. A stranger's has no command.
_GATE = in_schema("""
SELECT g.gate_id, g.run_id, g.state, w.state AS workstream_state, wi.entity_id AS workstream, r.state AS run_state,
       ri.entity_id AS run,
       (SELECT i.entity_id FROM interlock.workflow_links l JOIN interlock.workflow_instances i ON i.id = l.source_id
         WHERE l.target_id = g.gate_id AND l.role = 'retry_of'
           AND (EXISTS (SELECT FROM interlock.commands WHERE workflow_id = l.source_id)
                OR NOT EXISTS (SELECT FROM interlock.commands WHERE workflow_id = g.gate_id)) LIMIT 1) AS retried_by
  FROM interlock.test_gates g
  JOIN interlock.workstreams w ON w.ws_id = g.workstream_id
  JOIN interlock.workflow_instances wi ON wi.id = w.ws_id
  JOIN interlock.runs r ON r.run_id = g.run_id
  JOIN interlock.workflow_instances ri ON ri.id = r.run_id
 WHERE g.gate_id = %(id)s
""")
# What stands in the way of validating a workstream by hand: tasks that have not ended, patches open or taken back.
_WORKSTREAM = in_schema("""
SELECT (SELECT count(*) FROM interlock.tasks t WHERE t.workstream_id = w.ws_id
           AND t.completed_at IS NULL) AS unended,
       (SELECT array_agg(i.entity_id::text ORDER BY i.entity_id)
          FROM interlock.patch_ledger_entries p JOIN interlock.workflow_instances i ON i.id = p.ledger_id
         WHERE p.workstream_id = w.ws_id AND p.state <> 'committed') AS patches
  FROM interlock.workstreams w WHERE w.ws_id = %(id)s
""")
# A task waits no longer for what is not fulfilled; the links stay, in another role, so that it can be seen.
_WAIVE_UNMET = in_schema("""
UPDATE interlock.workflow_links l SET role = 'waived', inverse = 'waived_by'
  FROM interlock.workflow_instances i
 WHERE l.source_id = %(task)s AND l.role IN ('depends_on', 'blocked_by_gates') AND i.id = l.target_id
   AND i.current_state NOT IN ('completed', 'PASSED')
RETURNING i.workflow_type || '/' || i.entity_id || ' (' || i.current_state || ')' AS name
""")
# Nobody waits for a task any more, and no gate judges it that has not passed.
_WAIVE_TASK = in_schema("""
UPDATE interlock.workflow_links l SET role = 'waived', inverse = 'waived_by'
  FROM interlock.workflow_instances o
 WHERE (%(waited)s AND l.target_id = %(task)s AND l.role = 'depends_on' AND o.id = l.source_id
        OR l.source_id = %(task)s AND l.role = 'gates' AND o.id = l.target_id AND o.current_state <> 'PASSED')
RETURNING o.id, o.workflow_type || '/' || o.entity_id AS name, o.current_state AS state,
          l.target_id = %(task)s AS waited
""")
# Of these gates, those that have nothing left to judge: nobody waits for them any more.
_WAIVE_IDLE_GATES = in_schema("""
UPDATE interlock.workflow_links l SET role = 'waived', inverse = 'waived_by'
  FROM interlock.test_gates g JOIN interlock.workflow_instances i ON i.id = g.gate_id
 WHERE g.gate_id = ANY(%(gates)s) AND g.moment = 'task' AND g.state IN ('PENDING', 'BLOCKED')
   AND l.target_id = g.gate_id AND l.role IN ('depends_on', 'blocked_by_gates', 'gates')
   AND NOT EXISTS (SELECT FROM interlock.workflow_links j WHERE j.target_id = g.gate_id AND j.role = 'gates')
RETURNING i.entity_id AS name
""")
# Another task takes a task's place: whoever waits for the old one waits for the new, and gates judge only that.
_REPLACE_TASK = in_schema("""
WITH waiting AS (
    UPDATE interlock.workflow_links SET target_id = %(new)s WHERE target_id = %(old)s AND role = 'depends_on'
), judged AS (
    UPDATE interlock.workflow_links SET role = 'waived', inverse = 'waived_by'
     WHERE source_id = %(old)s AND role = 'gates'
)
UPDATE interlock.tasks SET left_out = true WHERE task_id = %(old)s
""")
# What these tasks are linked to now, with where that stands: {source_id, role, target_id, kind, name, state}.
_WAITS_OF = in_schema("""
SELECT l.source_id, l.role, l.target_id, i.workflow_type AS kind, i.entity_id AS name, i.current_state AS state
  FROM interlock.workflow_links l JOIN interlock.workflow_instances i ON i.id = l.target_id
 WHERE l.source_id = ANY(%(ids)s) AND l.role IN ('depends_on', 'gates', 'blocked_by_gates')
 ORDER BY l.source_id, l.role, l.target_id
""")
# What the scheduler asked for and nobody has applied yet: it asks anew, of what an operator made of the run.
_FORGET_OWED = in_schema("""
UPDATE interlock.trigger_requests r
   SET status = 'superseded', finished_at = now(),
       result = jsonb_build_object('code', 'superseded', 'message', 'an operator changed what it was owed for')
 WHERE r.status = 'pending' AND r.triggered_by = 'scheduler' AND (%(only)s::uuid IS NULL OR r.workflow_id = %(only)s)
   AND r.workflow_id IN (SELECT task_id FROM interlock.tasks WHERE run_id = %(run)s
                         UNION ALL SELECT gate_id FROM interlock.test_gates WHERE run_id = %(run)s
                         UNION ALL SELECT ws_id FROM interlock.workstreams WHERE run_id = %(run)s)
""")


def task(connection: Connection, task_id: UUID) -> RowMapping | None:
    """A task with its run, workstream and links; None if it belongs to no run (versions 0.x)."""
    return connection.exec_driver_sql(sql("override_task"), {"id": task_id}).mappings().first()


def gate(connection: Connection, gate_id: UUID) -> RowMapping | None:
    """A gate with its run, its workstream and the gate that was made in its place; None if it belongs to no run."""
    return connection.exec_driver_sql(_GATE, {"id": gate_id}).mappings().first()


def workstream(connection: Connection, workstream_id: UUID) -> RowMapping | None:
    """What prevents validating a workstream: the number of `unended` tasks, the names of uncommitted `patches`."""
    return connection.exec_driver_sql(_WORKSTREAM, {"id": workstream_id}).mappings().first()


def consequences(connection: Connection, run_id: UUID) -> list[str]:
    """The consequences of the operator's moves in this transaction, one line each."""
    return [row.line for row in connection.exec_driver_sql(sql("override_follows"), {"run": run_id})]


def leave_out(connection: Connection, task_id: UUID) -> None:
    """Mark a task as left out: it no longer counts in its workstream, once the run is recounted."""
    connection.execute(update(tasks).where(tasks.c.task_id == task_id).values(left_out=True))


def waive_unmet(connection: Connection, task_id: UUID) -> list[str]:
    """Waive a task's unmet dependencies; returns their names."""
    return sorted(row.name for row in connection.exec_driver_sql(_WAIVE_UNMET, {"task": task_id}))


def waive_task(connection: Connection, task_id: UUID, *, waited: bool) -> list[str]:
    """Waive a task's links from gates that have not passed and, with `waited`, from its dependents; returns these."""
    found = connection.exec_driver_sql(_WAIVE_TASK, {"task": task_id, "waited": waited}).all()
    gates = [row.id for row in found if not row.waited]
    idle = connection.exec_driver_sql(_WAIVE_IDLE_GATES, {"gates": gates}).all()
    waiting = [row.name for row in found if row.waited and row.state not in next_trigger.ENDED["task"]]
    return waiting + sorted({f"test_gate/{row.name}" for row in idle})


def replace_task(connection: Connection, old: UUID, new: UUID) -> None:
    """Replace a task by another in every link of instances that have not ended."""
    connection.exec_driver_sql(_REPLACE_TASK, {"old": old, "new": new})


def lost_because(connection: Connection, ids: Iterable[UUID], *, misjudged: bool = False) -> list[tuple[str, UUID]]:
    """(kind, id) of the tasks and gates that were cancelled or lost because of these; `misjudged`: or failed."""
    parameters = {"ids": list(ids), "misjudged": misjudged}
    return [(row.kind, row.id) for row in connection.exec_driver_sql(sql("lost_because"), parameters)]


def waits_of(connection: Connection, ids: Iterable[UUID]) -> Sequence[RowMapping]:
    """The tasks' current links in the roles `depends_on`, `gates` and `blocked_by_gates`."""
    return connection.exec_driver_sql(_WAITS_OF, {"ids": list(ids)}).mappings().all()


def free_name(connection: Connection, project: str, kind: str, base: str) -> str:
    """A name that is free in the project: BASE~2, or with the next number after those of at most 5 digits."""
    query = select(instances.c.entity_id).where(
        instances.c.project == project,
        instances.c.workflow_type == kind,
        instances.c.entity_id.startswith(f"{base}~", autoescape=True),
    )
    taken = [name.rpartition("~")[2] for name in connection.execute(query).scalars()]
    return f"{base}~{max([1, *(int(each) for each in taken if each.isdecimal() and len(each) < 6)]) + 1}"


def recount(connection: Connection, run_id: UUID) -> None:
    """Recount a run from its states and links; the scheduler's next pass looks at all its unended instances."""
    parameters = {"run": run_id}
    _mark_gates_lost(connection, run_id)
    forget_owed(connection, run_id)
    for name in ("recount_tasks", "recount_workstreams", "look_again"):
        connection.exec_driver_sql(sql(name), parameters)


def forget_owed(connection: Connection, run_id: UUID, *, only: UUID | None = None) -> None:
    """Drop the scheduler's unapplied triggers in a run (with `only`: on one instance); it fires them again if due."""
    connection.exec_driver_sql(_FORGET_OWED, {"run": run_id, "only": only})


def newest(
    connection: Connection, *, project: str | None, hours: int, by: str | None, limit: int
) -> Sequence[RowMapping]:
    """The overrides of the last `hours`, newest first, by all operators or one."""
    parameters = {"project": project, "hours": hours, "by": by, "limit": limit}
    return connection.exec_driver_sql(sql("override_list"), parameters).mappings().all()


def _mark_gates_lost(connection: Connection, run_id: UUID) -> None:
    def ids(query: Any) -> list[UUID]:
        return list(connection.execute(query).scalars())

    gates = select(test_gates.c.gate_id).where(test_gates.c.run_id == run_id)
    connection.execute(update(test_gates).where(test_gates.c.run_id == run_id, test_gates.c.lost).values(lost=False))
    failed = scheduling.facts(connection, "test_gate", ids(gates.where(test_gates.c.state == "FAILED")))
    scheduling.mark_gates_lost(
        connection,
        failed=[gate["id"] for gate in failed if next_trigger.gate(gate) is None],
        ended=ids(
            select(workstreams.c.ws_id).where(
                workstreams.c.run_id == run_id, workstreams.c.state.in_(next_trigger.ENDED["workstream"])
            )
        ),
        worked=(),
        moved=ids(gates),
    )
