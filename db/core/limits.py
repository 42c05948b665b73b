"""Limits: which are in force, how much of them is used, and who waits for them (docs/spec/limit.md)."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypedDict, cast
from uuid import UUID

from sqlalchemy import Connection

from interlock.db.fast_path import rows
from interlock.db.schema import in_schema
from interlock.db.statements import queries

sql = queries(__file__)

_FULL = in_schema("""
SELECT p.* FROM interlock.limit_places(NULL, NULL) p WHERE p.room = 0 AND EXISTS (SELECT FROM interlock.limits)
""")
# Of an effect that is due, the limit that has no room for it.
_REFUSING = in_schema("""
SELECT n.name FROM interlock.due_effects d JOIN interlock.full_limits() f USING (project), unnest(f.named) AS n(name)
 WHERE d.id = %(id)s AND interlock.held_back(ARRAY[n.name], d.workflow_type, NULL, d.limit_key)
   AND EXISTS (SELECT FROM interlock.limits)
 ORDER BY n.name LIMIT 1
""")
# Of a job, the same.
_REFUSING_JOB = in_schema("""
SELECT n.name
  FROM interlock.workflow_instances i JOIN interlock.full_limits() f USING (project), unnest(f.named) AS n(name)
 WHERE i.id = %(id)s AND interlock.held_back(ARRAY[n.name], i.workflow_type, i.context->>'tool', NULL)
   AND EXISTS (SELECT FROM interlock.limits)
 ORDER BY n.name LIMIT 1
""")
_HELD = in_schema("""
SELECT i.workflow_type, i.entity_id, w.workflow_id, w.holder, w.since
  FROM interlock.limits l
  JOIN interlock.limited_work w
    ON w.project = l.project AND interlock.counts_as(l, w.type, w.tool, w.limit_key) = %(name)s
  JOIN interlock.workflow_instances i ON i.id = w.workflow_id
 WHERE l.limit_id = %(limit_id)s
 ORDER BY i.entity_id
""")
_PRUNE = in_schema("""
DELETE FROM interlock.limit_starts s
 WHERE id = ANY (ARRAY(
        SELECT o.id FROM interlock.limit_starts o
         WHERE NOT EXISTS (SELECT FROM interlock.limits l
                            WHERE (l.project, l.kind) = (o.project, o.kind)
                              AND o.started_at > clock_timestamp() - make_interval(secs => l.per_seconds))
         LIMIT %(limit)s))
""")


class LimitRow(TypedDict):
    """A limit in force, with the event that put it there: who, why, since when.

    `name`: as it was set, `x*` for each name that begins with x.
    """

    limit_id: UUID
    project: str
    kind: str
    name: str
    at_once: int | None
    starts: int | None
    per_seconds: float | None
    by: str
    reason: str
    since: datetime


class LimitPlace(TypedDict):
    """A name that a limit counts: how much is used, and how much may start now (`room`).

    `pattern`: the limit's name, `x*` or the same. `free_at`: if all starts are used, when the oldest no longer counts.
    """

    limit_id: UUID
    project: str
    kind: str
    pattern: str
    name: str
    at_once: int | None
    starts: int | None
    per_seconds: float | None
    held: int
    started: int
    free_at: datetime | None
    room: int


class LimitUse(LimitPlace):
    """The same, with how many tasks, effects and jobs wait that it counts."""

    waiting: int


class LimitHolder(TypedDict):
    """Who holds a place: a task, a job or an instance whose effect runs, and the worker or process that carries it out.

    Of a job, who submitted it.
    """

    workflow_type: str
    entity_id: str
    workflow_id: UUID
    holder: str
    since: datetime | None


def listed(
    connection: Connection,
    *,
    project: str | None = None,
    kind: str | None = None,
    name: str | None = None,
    most: int | None = None,
) -> list[LimitRow]:
    """The limits in force, in the order of their names: of a project, a kind and a name, where these are given.

    At most `most`; None: all.
    """
    given = {"project": project, "kind": kind, "name": name, "most": most}
    return cast(list[LimitRow], rows(connection, sql("listed"), given))


def uses(connection: Connection, limit_ids: Sequence[UUID], *, most: int | None = None) -> list[LimitUse]:
    """What is used of these limits, by name, and how much waits for each.

    Args:
        connection: any.
        limit_ids: of which limits.
        most: tasks, effects and jobs that wait, of each, are counted up to this number; None: all are.
    """
    return cast(list[LimitUse], rows(connection, sql("uses"), {"ids": list(limit_ids), "most": most}))


def with_uses(connection: Connection, found: Sequence[LimitRow], *, most: int | None = None) -> list[dict[str, Any]]:
    """These limits, each with what is used of it: `uses`."""
    used = uses(connection, [row["limit_id"] for row in found], most=most)
    return [{**row, "uses": [use for use in used if use["limit_id"] == row["limit_id"]]} for row in found]


def holders(connection: Connection, limit_id: UUID, name: str) -> list[LimitHolder]:
    """Who holds the places of a name that a limit counts."""
    return cast(list[LimitHolder], rows(connection, _HELD, {"limit_id": limit_id, "name": name}))


def full(connection: Connection) -> list[LimitPlace]:
    """The names under which nothing more may start now."""
    return cast(list[LimitPlace], rows(connection, _FULL, {}))


def refusing(connection: Connection, effect_id: UUID) -> str | None:
    """The limit that leaves no room for an effect that is due, as `key eu-1`; None: it waits for none."""
    found = connection.exec_driver_sql(_REFUSING, {"id": effect_id}).scalar()
    return None if found is None else str(found)


def refusing_job(connection: Connection, job_id: UUID) -> str | None:
    """The limit that leaves no room for a job, as `tool pytest`; None: it waits for none."""
    found = connection.exec_driver_sql(_REFUSING_JOB, {"id": job_id}).scalar()
    return None if found is None else str(found)


def prune(connection: Connection, *, limit: int) -> int:
    """Delete starts that no limit counts any more."""
    return connection.exec_driver_sql(_PRUNE, {"limit": limit}).rowcount
