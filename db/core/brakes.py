"""Brakes: which are on, what they hold, and who goes back and forth (docs/spec/brake.md)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict, cast
from uuid import UUID

from sqlalchemy import Connection

from interlock.db.fast_path import rows
from interlock.db.schema import in_schema
from interlock.db.statements import queries

sql = queries(__file__)

_UNANNOUNCED = in_schema("""
SELECT i.id, i.version FROM interlock.brakes b JOIN interlock.workflow_instances i ON i.id = b.brake_id
 WHERE i.current_state = 'reached' ORDER BY b.since LIMIT %(limit)s
""")
_HELD = in_schema("""
SELECT r.request_id, r.accepted_at, i.workflow_type || '/' || i.entity_id AS instance, r.workflow_id, r.trigger,
       r.triggered_by
  FROM interlock.trigger_requests r JOIN interlock.workflow_instances i ON i.id = r.workflow_id
 WHERE r.held_by = %(id)s AND r.status = 'waiting' ORDER BY r.seq LIMIT %(limit)s
""")
_ON_INSTANCE = in_schema("""
SELECT b.brake_id, b.entity_id, b.kind, b.reason, b.since
  FROM interlock.workflow_instances i
  JOIN interlock.brakes b
    ON b.project = i.project
       AND (b.kind, b.name) IN (('project', i.project), ('run', interlock.run_of(i)), ('instance', i.id::text))
 WHERE i.id = %(id)s ORDER BY b.since
""")


class BrakeRow(TypedDict):
    """A brake that is on: what it holds (`kind`, `name`; `shown`: for people), why, since when, and put on by whom.

    `held`: how many triggers it holds. `context`: its terms, with the figures.
    """

    brake_id: UUID
    project: str
    entity_id: str
    kind: str
    name: str
    shown: str
    reason: str
    since: datetime
    by: str
    state: str
    version: int
    context: Mapping[str, Any]
    held: int


class Bounce(TypedDict):
    """An instance that went more often from one state to another than it may: `times`."""

    workflow_id: UUID
    workflow_type: str
    entity_id: str
    project: str
    from_state: str
    to_state: str
    times: int


@dataclass(frozen=True, slots=True)
class Looked:
    """How many events were read, the place of the last one in commit order, and who goes back and forth."""

    read: int
    place: tuple[int, int]
    bounces: list[Bounce]


def listed(connection: Connection, *, project: str | None = None, name: str | None = None) -> list[BrakeRow]:
    """The brakes that are on, the oldest first: of a project, and of a name, where these are given."""
    return cast(list[BrakeRow], rows(connection, sql("listed"), {"project": project, "name": name}))


def on_instance(connection: Connection, instance_id: UUID) -> list[dict[str, Any]]:
    """The brakes that hold an instance, its run or its project: brake_id, entity_id, kind, reason, since."""
    return [dict(row) for row in rows(connection, _ON_INSTANCE, {"id": instance_id})]


def held(connection: Connection, brake_id: UUID, *, limit: int) -> list[dict[str, Any]]:
    """The oldest triggers that a brake holds: request_id, accepted_at, instance, workflow_id, trigger, triggered_by."""
    return [dict(row) for row in rows(connection, _HELD, {"id": brake_id, "limit": limit})]


def unannounced(connection: Connection, *, limit: int) -> list[dict[str, Any]]:
    """(id, version) of brakes that nobody was told of, the oldest first."""
    return [dict(row) for row in rows(connection, _UNANNOUNCED, {"limit": limit})]


def bouncing(connection: Connection, *, after: tuple[int, int], most: int, seconds: float, limit: int) -> Looked:
    """Read the events after a place in commit order for instances that go back and forth.

    Args:
        connection: any.
        after: (transaction id, position) of the last event that was read.
        most: how often an instance may go from one state to another in `seconds`.
        seconds: that period.
        limit: the most events to read.
    """
    given = {"xid": str(after[0]), "position": after[1], "most": most, "seconds": seconds, "limit": limit}
    found = rows(connection, sql("bouncing"), given)
    if not found:
        return Looked(0, after, [])
    bounces = [cast(Bounce, row) for row in found if row["workflow_id"] is not None]
    return Looked(found[0]["read"], (found[0]["xid"], found[0]["position"]), bounces)
