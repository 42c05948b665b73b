"""What overrides read of a run, and what they change beside states: links between instances, and counts.

The caller must hold the locks of the run and of every partition, so that nobody else moves or counts.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, TypedDict, cast
from uuid import UUID

from sqlalchemy import Connection, select, update

from interlock.db.fast_path import rows
from interlock.db.orchestration import scheduling
from interlock.db.schema import in_schema
from interlock.db.statements import first, queries
from interlock.db.tables.core import instances
from interlock.db.tables.orchestration import test_gates, workstreams
from interlock.workflows.scheduling import next_trigger

sql = queries(__file__)

# A gate as an operator has to see it: where it stands, and what was made in its place. A stranger's has no command.
_GATE = in_schema("""
SELECT g.gate_id, i.entity_id AS gate, g.run_id, g.state, g.workstream_id, w.state AS workstream_state,
       wi.entity_id AS workstream, r.state AS run_state, ri.entity_id AS run,
       (SELECT i.entity_id FROM interlock.workflow_links l JOIN interlock.workflow_instances i ON i.id = l.source_id
         WHERE l.target_id = g.gate_id AND l.role = 'retry_of'
           AND (EXISTS (SELECT FROM interlock.commands WHERE workflow_id = l.source_id)
                OR NOT EXISTS (SELECT FROM interlock.commands WHERE workflow_id = g.gate_id)) LIMIT 1) AS retried_by
  FROM interlock.test_gates g
  JOIN interlock.workflow_instances i ON i.id = g.gate_id
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
         WHERE p.workstream_id = w.ws_id AND p.state <> 'committed'
           AND NOT EXISTS (SELECT FROM interlock.tasks t WHERE t.task_id = p.task_id AND t.left_out)) AS patches
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
# A task no longer counts. Nor do its patches that were set aside: they fail its workstream no more.
_LEAVE_OUT = in_schema("""
WITH set_aside AS (
    UPDATE interlock.workflow_links l SET role = 'waived', inverse = 'waived_by'
      FROM interlock.patch_ledger_entries p
     WHERE p.task_id = %(task)s AND p.state IN ('quarantined', 'dropped', 'rolled_back')
       AND l.source_id = p.ledger_id AND l.role = 'workstream'
)
UPDATE interlock.tasks SET left_out = true WHERE task_id = %(task)s
""")
# Another task takes a task's place: whoever waits for the old one waits for the new, and gates judge only that. Who was
# let go on because the old one was completed goes on.
_REPLACE_TASK = in_schema("""
WITH waiting AS (
    UPDATE interlock.workflow_links l SET target_id = %(new)s
     WHERE l.target_id = %(old)s AND l.role = 'depends_on'
       AND NOT EXISTS (SELECT FROM interlock.tasks t WHERE t.task_id = l.source_id
                          AND t.state IN ('queued', 'running', 'retrying', 'validating', 'completed'))
)
UPDATE interlock.workflow_links SET role = 'waived', inverse = 'waived_by' WHERE source_id = %(old)s AND role = 'gates'
""")
# A passed gate is run again: it judges all its tasks anew that are not completed or left out. What relied on it stands.
_JUDGE_AGAIN = in_schema("""
UPDATE interlock.workflow_links l SET target_id = %(new)s
  FROM interlock.tasks t
 WHERE l.target_id = %(old)s AND l.role = 'gates' AND t.task_id = l.source_id AND t.state <> 'completed'
   AND NOT t.left_out
""")
# What these tasks are linked to now, with where that stands: {source_id, role, target_id, kind, name, state}.
_WAITS_OF = in_schema("""
SELECT l.source_id, l.role, l.target_id, i.workflow_type AS kind, i.entity_id AS name, i.current_state AS state
  FROM interlock.workflow_links l JOIN interlock.workflow_instances i ON i.id = l.target_id
 WHERE l.source_id = ANY(%(ids)s) AND l.role IN ('depends_on', 'gates', 'blocked_by_gates')
 ORDER BY l.source_id, l.role, l.target_id
""")
# Of which instances of a run the scheduler has asked for something that nobody has applied yet.
_OWED = in_schema("""
SELECT DISTINCT r.workflow_id AS id
  FROM interlock.trigger_requests r JOIN interlock.workflow_instances i ON i.id = r.workflow_id
 WHERE r.status = 'pending' AND r.triggered_by = 'scheduler'
   AND (i.id = %(run)s OR i.context->>'run_id' = %(run)s::uuid::text)
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


class PartOfRun(TypedDict):
    """A task or gate: where it stands, with its workstream and run, and the one that was made in its place."""

    run_id: UUID
    state: str
    workstream_id: UUID
    workstream_state: str
    workstream: str
    run_state: str
    run: str
    retried_by: str | None


class OverriddenTask(PartOfRun):
    """A task, with what it waits for, who had it last, and its patch that is being processed."""

    task_id: UUID
    unmet: int
    dead: int
    retry_count: int
    left_out: bool
    last_worker: UUID | None
    open_patch: str | None


class OverriddenGate(PartOfRun):
    """A gate, and its name."""

    gate_id: UUID
    gate: str


class Unvalidated(TypedDict):
    """What prevents validating a workstream: the number of `unended` tasks, the names of uncommitted `patches`."""

    unended: int
    patches: list[str] | None


class DependencyLink(TypedDict):
    """A link of a task, with the kind, name and state of what it leads to."""

    source_id: UUID
    role: str
    target_id: UUID
    kind: str
    name: str
    state: str


class OverrideMove(TypedDict):
    """A move that an operator made by hand."""

    transitioned_at: datetime
    operator: str
    project: str
    entity_type: str
    entity_id: str
    from_state: str
    to_state: str
    trigger: str
    reason: str
    workflow_id: UUID


def task(connection: Connection, task_id: UUID) -> OverriddenTask | None:
    """A task with its run, workstream and links; None if it belongs to no run (versions 0.x)."""
    return cast(OverriddenTask | None, first(connection, sql("override_task"), {"id": task_id}))


def gate(connection: Connection, gate_id: UUID) -> OverriddenGate | None:
    """A gate with its run, its workstream and the gate that was made in its place; None if it belongs to no run."""
    return cast(OverriddenGate | None, first(connection, _GATE, {"id": gate_id}))


def workstream(connection: Connection, workstream_id: UUID) -> Unvalidated | None:
    """What prevents validating a workstream; None if there is none with that id."""
    return cast(Unvalidated | None, first(connection, _WORKSTREAM, {"id": workstream_id}))


def consequences(connection: Connection, run_id: UUID) -> list[str]:
    """The consequences of the operator's moves in this transaction, one line each."""
    return [row.line for row in connection.exec_driver_sql(sql("override_follows"), {"run": run_id})]


def leave_out(connection: Connection, task_id: UUID) -> None:
    """Mark a task as left out: it no longer counts in its workstream, once the run is recounted."""
    connection.exec_driver_sql(_LEAVE_OUT, {"task": task_id})


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
    leave_out(connection, old)


def judge_again(connection: Connection, old: UUID, new: UUID) -> None:
    """Redirect the links from a passed gate to another one, of the tasks that are not completed or left out."""
    connection.exec_driver_sql(_JUDGE_AGAIN, {"old": old, "new": new})


def lost_because(connection: Connection, ids: Iterable[UUID], *, misjudged: bool = False) -> list[tuple[str, UUID]]:
    """(kind, id) of the tasks and gates that were cancelled or lost because of these; `misjudged`: or failed."""
    parameters = {"ids": list(ids), "misjudged": misjudged}
    return [(row.kind, row.id) for row in connection.exec_driver_sql(sql("lost_because"), parameters)]


def waits_of(connection: Connection, ids: Iterable[UUID]) -> list[DependencyLink]:
    """The tasks' current links in the roles `depends_on`, `gates` and `blocked_by_gates`."""
    return cast(list[DependencyLink], rows(connection, _WAITS_OF, {"ids": list(ids)}))


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


def owed(connection: Connection, run_id: UUID) -> list[UUID]:
    """The instances of a run on which triggers of the scheduler are pending, the run itself among them."""
    return [row.id for row in connection.exec_driver_sql(_OWED, {"run": run_id})]


def forget_owed(connection: Connection, run_id: UUID, *, only: UUID | None = None) -> None:
    """Drop the scheduler's unapplied triggers in a run (with `only`: on one instance); it fires them again if due."""
    connection.exec_driver_sql(_FORGET_OWED, {"run": run_id, "only": only})


def newest(
    connection: Connection, *, project: str | None, hours: int, by: str | None, limit: int
) -> list[OverrideMove]:
    """The overrides of the last `hours`, newest first, by all operators or one."""
    parameters = {"project": project, "hours": hours, "by": by, "limit": limit}
    return cast(list[OverrideMove], rows(connection, sql("override_list"), parameters))


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
