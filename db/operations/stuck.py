"""Stuck instances: too long in a state, what they wait for, and what the last sweep found."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict, cast
from uuid import UUID

from sqlalchemy import Connection, RowMapping, func, select

from interlock.db.schema import in_schema
from interlock.db.statements import Rows, as_json, queries
from interlock.db.tables.core import stuck_entities

sql = queries(__file__)

# A workstream's tasks, where each stands, and how long it has run.
_TASKS_OF = in_schema("""
SELECT t.task_id, i.entity_id, i.version, t.state, k.name AS worker,
       COALESCE(extract(epoch FROM now() - t.started_at), 0)::double precision AS seconds
  FROM interlock.tasks t JOIN interlock.workflow_instances i ON i.id = t.task_id
  LEFT JOIN interlock.workers k ON k.worker_id = t.worker_id
 WHERE t.workstream_id = %(id)s
 ORDER BY t.created_at, t.task_id
""")


_SCHEDULES = in_schema("""
SELECT s.schedule_id, s.next_at, s.failed_at, t.workflow_type AS target_type, t.definition_version AS target_version,
       (SELECT e.metadata->>'reason' FROM interlock.workflow_transitions e
         WHERE e.workflow_id = s.schedule_id AND e.trigger = 'firing_failed' ORDER BY e.seq DESC LIMIT 1) AS failure
  FROM interlock.schedules s
  JOIN interlock.workflow_instances i ON i.id = s.schedule_id
  LEFT JOIN interlock.workflow_instances t ON t.id = (i.context->'does'->'fire'->>'instance')::uuid
 WHERE s.schedule_id = ANY (%(ids)s)
""")


# Why an endpoint takes nothing: its last answer.
_SUBSCRIPTIONS = in_schema("""
SELECT s.subscription_id, s.failed_at, s.attempts, s.next_at, s.answer->>'error' AS error, s.answer->>'event' AS event
  FROM interlock.subscriptions s WHERE s.subscription_id = ANY (%(ids)s)
""")


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The seconds after which instances count as stuck (RECOVER-1, RECOVER-3); None: never.

    Attributes:
        task: running tasks, or their own time limits if those are longer.
        workstream: executing workstreams whose members made no progress meanwhile.
        silent: workers, since their last heartbeat.
        due: due triggers, timers, effects and schedules, expired leases, tasks that no worker could take, and half-open
            breakers that nobody tries.
        general: all others that are neither in a terminal nor in a resting state.
    """

    task: float | None
    workstream: float | None
    silent: float
    due: float | None
    general: float | None

    @property
    def own(self) -> Mapping[tuple[str, str], float | None]:
        """(type, state) -> the seconds allowed there; everywhere else `general` applies."""
        return {("task", "running"): self.task, ("workstream", "executing"): self.workstream}


class KeptStuck(TypedDict):
    """A stuck instance as the sweep found it. `many`: how many there are of all that were asked for."""

    workflow_id: UUID
    workflow_type: str
    entity_id: str
    project: str
    state: str
    since: datetime
    reason: str
    many: int


def kept(connection: Connection, projects: Collection[str] | None, *, limit: int) -> Sequence[KeptStuck]:
    """What the last sweep found stuck, longest first.

    Args:
        connection: any.
        projects: of these only; None: of all.
        limit: the most to return.
    """
    given = {"projects": None if projects is None else list(projects), "limit": limit}
    return cast(Sequence[KeptStuck], connection.exec_driver_sql(sql("kept"), given).mappings().all())


def late(
    connection: Connection,
    thresholds: Thresholds,
    *,
    resting: Collection[tuple[str, str, str]],
    healthy: bool = False,
    type_: str | None = None,
    project: str | None = None,
    unservable: Sequence[UUID] = (),
    limit: int | None,
) -> Sequence[RowMapping]:
    """Instances that have been in their state for too long, longest first: `since`, `seconds`; `total`: their number.

    Args:
        connection: any.
        thresholds: how long is too long. An instance with a dead request or effect is late at once.
        resting: (type, version, state) in which an instance may stay for ever (`Catalogue.resting`).
        healthy: also what makes progress: tasks within their own time limits, workstreams and runs with such tasks.
        type_, project: only these.
        unservable: tasks that no worker could take (`workers.unservable`): late at any age.
        limit: the most instances to return; None: all.
    """
    limits: list[dict[str, Any]] = [
        {"workflow_type": kind, "version": version, "state": state, "seconds": None} for kind, version, state in resting
    ]
    limits += [
        {"workflow_type": kind, "state": state, "seconds": seconds} for (kind, state), seconds in thresholds.own.items()
    ]
    known = [each for each in (thresholds.task, thresholds.workstream, thresholds.general) if each is not None]
    parameters = {
        "limits": json.dumps(limits),
        "but_healthy": not healthy,
        "least": min(known, default=None),
        "general": thresholds.general,
        "silent": thresholds.silent,
        "due": thresholds.due,
        "unservable": list(unservable),
        "type": type_,
        "project": project,
        "limit": limit,
    }
    return connection.exec_driver_sql(sql("late"), parameters).mappings().all()


def requests_of(connection: Connection, ids: Sequence[UUID]) -> Sequence[RowMapping]:
    """The open, dead and last refused requests of instances, oldest first, with the approvals they wait for."""
    return connection.exec_driver_sql(sql("stuck_requests"), {"ids": list(ids)}).mappings().all()


def effects_of(connection: Connection, ids: Sequence[UUID]) -> Sequence[RowMapping]:
    """The effects that instances wait for in their present state."""
    return connection.exec_driver_sql(sql("stuck_effects"), {"ids": list(ids)}).mappings().all()


def tasks(connection: Connection, ids: Sequence[UUID], *, silent: float) -> Mapping[UUID, RowMapping]:
    """What tasks wait for: workstream, run, worker, claim, breaker, and the fitting live workers."""
    parameters = {"ids": list(ids), "silent": silent}
    return {row["id"]: row for row in connection.exec_driver_sql(sql("stuck_tasks"), parameters).mappings()}


def groups(connection: Connection, ids: Sequence[UUID]) -> Mapping[UUID, RowMapping]:
    """What workstreams and runs wait for: their members that have not ended."""
    return {row["id"]: row for row in connection.exec_driver_sql(sql("stuck_groups"), {"ids": list(ids)}).mappings()}


def last_heartbeats(connection: Connection, ids: Sequence[UUID]) -> Mapping[UUID, RowMapping]:
    """(worker_id, name, seconds) of workers: seconds since the last heartbeat."""
    rows = connection.exec_driver_sql(
        in_schema(
            "SELECT worker_id, name, extract(epoch FROM now() - last_heartbeat)::double precision AS seconds"
            " FROM interlock.workers WHERE worker_id = ANY(%(ids)s)"
        ),
        {"ids": list(ids)},
    ).mappings()
    return {row["worker_id"]: row for row in rows}


def schedules(connection: Connection, ids: Sequence[UUID]) -> Mapping[UUID, RowMapping]:
    """Why schedules do not fire: `next_at`, since when they fail and why, and the definition of what they fire at."""
    rows = connection.exec_driver_sql(_SCHEDULES, {"ids": list(ids)}).mappings()
    return {row["schedule_id"]: row for row in rows}


def subscriptions(connection: Connection, ids: Sequence[UUID]) -> Mapping[UUID, RowMapping]:
    """Why subscriptions do not deliver: since when they fail, how often, when they try again, and the last answer."""
    rows = connection.exec_driver_sql(_SUBSCRIPTIONS, {"ids": list(ids)}).mappings()
    return {row["subscription_id"]: row for row in rows}


def replace_findings(connection: Connection, findings: Rows) -> set[UUID]:
    """Replace the stored findings; returns the ids of instances that are newly stuck or stuck again."""
    return set(connection.exec_driver_sql(sql("keep_stuck"), {"rows": as_json(findings)}).scalars())


def count_by_type(connection: Connection) -> dict[str, int]:
    """Type -> number of instances that the last sweep found stuck."""
    query = select(stuck_entities.c.workflow_type, func.count()).group_by(stuck_entities.c.workflow_type)
    return {type_: count for type_, count in connection.execute(query)}


def tasks_of(connection: Connection, workstream_id: UUID) -> Sequence[RowMapping]:
    """(task_id, entity_id, version, state, worker, seconds) of a workstream's tasks; `seconds`: how long it has run."""
    return connection.exec_driver_sql(_TASKS_OF, {"id": workstream_id}).mappings().all()
