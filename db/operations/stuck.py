"""Who stands still: those that stood too long where nothing keeps them, what they wait for, and what was found last."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, RowMapping, func, select

from interlock.db.connection import sql
from interlock.db.schema import in_schema
from interlock.db.statements import Rows, as_json
from interlock.db.tables.core import stuck_entities

# Where an instance may stand for ever: it is at rest, not stuck. Workers are judged by their heartbeats.
REST = (
    ("worker", "idle"),
    ("worker", "busy"),
    ("worker", "unresponsive"),
    ("uet_worker", "IDLE"),
    ("supervised_worker", "IDLE"),
    ("circuit_breaker", "CLOSED"),
    ("circuit_breaker", "HALF_OPEN"),  # until somebody calls the tool
    ("sprint", "active"),  # for one to two weeks
)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """After how many seconds who counts as stuck (RECOVER-1, RECOVER-3); None: never.

    Attributes:
        task: running tasks.
        workstream: executing workstreams.
        silent: workers whose last heartbeat is so old.
        due: a trigger, timer, effect or lease whose time has come, that nobody takes; a task that nobody could take.
        general: everything else that is not at an end and not at rest.
    """

    task: float | None
    workstream: float | None
    silent: float
    due: float | None
    general: float | None


def late(
    connection: Connection,
    thresholds: Thresholds,
    *,
    type_: str | None = None,
    project_id: UUID | None = None,
    unservable: Sequence[UUID] = (),
    limit: int,
) -> Sequence[RowMapping]:
    """Instances that have stood too long where they stand, the longest first: `since`, `seconds`; `total` of them all.

    Args:
        connection: any.
        thresholds: how long is too long. One with a dead request or effect is late at once.
        type_, project_id: only these.
        unservable: tasks that are late whatever their age: nobody could take them (`roster.unservable`).
        limit: at most so many.
    """
    limits: list[dict[str, Any]] = [{"workflow_type": kind, "state": state, "seconds": None} for kind, state in REST]
    limits.append({"workflow_type": "task", "state": "running", "seconds": thresholds.task})
    limits.append({"workflow_type": "workstream", "state": "executing", "seconds": thresholds.workstream})
    known = [each for each in (thresholds.task, thresholds.workstream, thresholds.general) if each is not None]
    given = {
        "limits": json.dumps(limits),
        "least": min(known, default=None),
        "general": thresholds.general,
        "silent": thresholds.silent,
        "due": thresholds.due,
        "unservable": list(unservable),
        "type": type_,
        "project": project_id,
        "limit": limit,
    }
    return connection.exec_driver_sql(sql("late"), given).mappings().all()


def requests_of(connection: Connection, ids: Sequence[UUID]) -> Sequence[RowMapping]:
    """The open, dead and last refused requests of instances, oldest first, each with the approval that holds it."""
    return connection.exec_driver_sql(sql("stuck_requests"), {"ids": list(ids)}).mappings().all()


def effects_of(connection: Connection, ids: Sequence[UUID]) -> Sequence[RowMapping]:
    """The effects that instances wait for where they stand."""
    return connection.exec_driver_sql(sql("stuck_effects"), {"ids": list(ids)}).mappings().all()


def tasks(connection: Connection, ids: Sequence[UUID], *, silent: float) -> Mapping[UUID, RowMapping]:
    """What tasks wait for: workstream, run, worker, claim, breaker, and which living workers fit."""
    given = {"ids": list(ids), "silent": silent}
    return {row["id"]: row for row in connection.exec_driver_sql(sql("stuck_tasks"), given).mappings()}


def groups(connection: Connection, ids: Sequence[UUID]) -> Mapping[UUID, RowMapping]:
    """What workstreams and runs wait for: their members that have not ended."""
    return {row["id"]: row for row in connection.exec_driver_sql(sql("stuck_groups"), {"ids": list(ids)}).mappings()}


def silences(connection: Connection, ids: Sequence[UUID]) -> Mapping[UUID, RowMapping]:
    """(worker_id, name, seconds) of workers: how long they have not been heard of."""
    rows = connection.exec_driver_sql(
        in_schema(
            "SELECT worker_id, name, extract(epoch FROM now() - last_heartbeat)::double precision AS seconds"
            " FROM interlock.workers WHERE worker_id = ANY(%(ids)s)"
        ),
        {"ids": list(ids)},
    ).mappings()
    return {row["worker_id"]: row for row in rows}


def keep(connection: Connection, found: Rows) -> set[UUID]:
    """Keep what a look found in place of the last one's; the ids of those that are new or stuck anew."""
    return set(connection.exec_driver_sql(sql("keep_stuck"), {"rows": as_json(found)}).scalars())


def kept(connection: Connection) -> dict[str, int]:
    """Type -> how many of it the last sweep found stuck."""
    query = select(stuck_entities.c.workflow_type, func.count()).group_by(stuck_entities.c.workflow_type)
    return {type_: count for type_, count in connection.execute(query)}


def tasks_of(connection: Connection, workstream_id: UUID) -> Sequence[RowMapping]:
    """(task_id, entity_id, state, worker, seconds) of a workstream's tasks; `seconds` of those that run."""
    return connection.exec_driver_sql(sql("tasks_of"), {"id": workstream_id}).mappings().all()
