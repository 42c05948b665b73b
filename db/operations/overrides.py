"""What overrides read of a run, and what they change of it beside states: who waits for what, and the counts of that.

Everything here needs the run's lock and every partition's: nobody moves, nobody counts meanwhile.
"""

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, RowMapping, select, update

from interlock.db.connection import sql
from interlock.db.orchestration import scheduling
from interlock.db.tables import tasks, test_gates, workstreams
from interlock.db.tables.core import instances
from interlock.workflows.scheduling import next_trigger


def task(connection: Connection, task_id: UUID) -> RowMapping | None:
    """A task of a run with its surroundings; None of one that belongs to no run (the older lineage)."""
    return connection.exec_driver_sql(sql("override_task"), {"id": task_id}).mappings().first()


def workstream(connection: Connection, workstream_id: UUID) -> RowMapping | None:
    """What stands in the way of validating a workstream: `unended` tasks, names of `patches` that are not committed."""
    return connection.exec_driver_sql(sql("override_workstream"), {"id": workstream_id}).mappings().first()


def followed(connection: Connection, run_id: UUID) -> list[str]:
    """What the transaction did beside the operator's own moves, a line each."""
    return [row.line for row in connection.exec_driver_sql(sql("override_follows"), {"run": run_id})]


def leave_out(connection: Connection, task_id: UUID) -> None:
    """A task counts no more among its workstream's, once the run is counted again."""
    connection.execute(update(tasks).where(tasks.c.task_id == task_id).values(left_out=True))


def waive_unmet(connection: Connection, task_id: UUID) -> list[str]:
    """Let a task wait no longer for what is not fulfilled; the names of that."""
    return sorted(row.name for row in connection.exec_driver_sql(sql("waive_unmet"), {"task": task_id}))


def waive_task(connection: Connection, task_id: UUID, *, waited: bool) -> list[str]:
    """Let no gate judge a task that has not passed, and (`waited`) nobody wait for it; what goes on without it."""
    found = connection.exec_driver_sql(sql("waive_task"), {"task": task_id, "waited": waited}).all()
    gates = [row.id for row in found if not row.waited]
    idle = connection.exec_driver_sql(sql("waive_idle_gates"), {"gates": gates}).all()
    waiting = [row.name for row in found if row.waited and row.state not in next_trigger.ENDED["task"]]
    return waiting + sorted({f"test_gate/{row.name}" for row in idle})


def replace_task(connection: Connection, old: UUID, new: UUID) -> None:
    """Let another task take a task's place in every link of those that have not ended."""
    connection.exec_driver_sql(sql("replace_task"), {"old": old, "new": new})


def lost_because(connection: Connection, ids: Iterable[UUID]) -> list[tuple[str, UUID]]:
    """(kind, id) of tasks and gates that were given up because of these."""
    return [(row.kind, row.id) for row in connection.exec_driver_sql(sql("lost_because"), {"ids": list(ids)})]


def waits_of(connection: Connection, ids: Iterable[UUID]) -> Sequence[RowMapping]:
    """What tasks are linked to now, as `depends_on`, `gates` and `blocked_by_gates`."""
    return connection.exec_driver_sql(sql("waits_of"), {"ids": list(ids)}).mappings().all()


def free_name(connection: Connection, project_id: UUID, kind: str, base: str) -> str:
    """BASE~2, or the next number that is free in the project."""
    query = select(instances.c.entity_id).where(
        instances.c.project_id == project_id,
        instances.c.workflow_type == kind,
        instances.c.entity_id.startswith(f"{base}~", autoescape=True),
    )
    taken = [name.rpartition("~")[2] for name in connection.execute(query).scalars()]
    return f"{base}~{max([1, *(int(each) for each in taken if each.isdecimal())]) + 1}"


def recount(connection: Connection, run_id: UUID) -> None:
    """Count a run again from its states and links, and let the next pass look at all of it that has not ended."""
    given = {"run": run_id}
    _lose_gates(connection, run_id)
    forget_owed(connection, run_id)
    for name in ("recount_tasks", "recount_workstreams", "look_again"):
        connection.exec_driver_sql(sql(name), given)


def forget_owed(connection: Connection, run_id: UUID, *, only: UUID | None = None) -> None:
    """Drop what the scheduler fired in a run (on one instance) that is not applied yet: it will ask anew."""
    connection.exec_driver_sql(sql("forget_owed"), {"run": run_id, "only": only})


def newest(connection: Connection, *, hours: int, by: str | None, limit: int) -> Sequence[RowMapping]:
    """The moves that operators (or one of them) made by hand in the last `hours`, the newest first."""
    given = {"hours": hours, "by": by, "limit": limit}
    return connection.exec_driver_sql(sql("override_list"), given).mappings().all()


def _lose_gates(connection: Connection, run_id: UUID) -> None:
    def ids(query: Any) -> list[UUID]:
        return list(connection.execute(query).scalars())

    gates = select(test_gates.c.gate_id).where(test_gates.c.run_id == run_id)
    connection.execute(update(test_gates).where(test_gates.c.run_id == run_id, test_gates.c.lost).values(lost=False))
    failed = scheduling.facts(connection, "test_gate", ids(gates.where(test_gates.c.state == "FAILED")))
    scheduling.lose_gates(
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
