"""Subscriptions: which are due, how far each has delivered, and how they stand (docs/spec/subscription.md)."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypedDict, cast
from uuid import UUID

from sqlalchemy import Connection

from interlock.db.fast_path import rows
from interlock.db.schema import in_schema
from interlock.db.statements import first, queries

sql = queries(__file__)

Place = tuple[int, int]  # a place in commit order: transaction id, position

_DUE = in_schema("""
SELECT s.subscription_id FROM interlock.subscriptions s
 WHERE s.state = 'active' AND s.next_at <= now() AND (s.lease_until IS NULL OR s.lease_until < now())
   AND EXISTS (SELECT FROM interlock.every_transition t WHERE (t.xid, t.position) > (s.xid, s.position))
 ORDER BY s.next_at LIMIT %(limit)s
""")
_RELEASED = in_schema("""
UPDATE interlock.subscriptions SET lease = NULL, lease_until = NULL WHERE subscription_id = %(id)s AND lease = %(lease)s
""")
_COUNTS = in_schema("SELECT status, subscriptions FROM interlock.count_subscriptions(%(seconds)s)")
_AT = in_schema("""
SELECT t.xid::text::bigint AS xid, t.position FROM interlock.every_transition t WHERE t.id = %(id)s
""")
_SINCE = in_schema("""
SELECT t.xid::text::bigint AS xid, t.position FROM interlock.every_transition t WHERE t.created_at >= %(since)s
 ORDER BY t.xid, t.position LIMIT 1
""")


class ClaimedSubscription(TypedDict):
    """A subscription that a worker delivers under a lease, and the place up to which it has delivered."""

    subscription_id: UUID
    lease: UUID
    name: str
    project: str
    context: dict[str, Any]
    xid: int
    position: int
    attempts: int


class SubscriptionRow(TypedDict):
    """How a subscription stands. Those that are not in force have no place and no answer."""

    id: UUID
    project: str
    name: str
    state: str
    version: int
    context: dict[str, Any]
    by: str
    created_at: datetime
    xid: int | None
    position: int | None
    delivered: int | None
    attempts: int | None
    next_at: datetime | None
    failed_at: datetime | None
    answer: dict[str, Any] | None
    answered_at: datetime | None
    at_work: bool | None
    changed_by_trigger: str | None
    changed_by: str | None
    reason: str | None
    changed_at: datetime | None
    behind_seconds: float


def due(connection: Connection, *, limit: int) -> list[UUID]:
    """The subscriptions that have events behind their place, and that nobody delivers. A look without locks."""
    return list(connection.exec_driver_sql(_DUE, {"limit": limit}).scalars())


def claim(connection: Connection, subscription_id: UUID, *, lease: UUID, seconds: float) -> ClaimedSubscription | None:
    """Take the lease of a subscription for so many seconds; None: it is not due, or another worker has it."""
    given = {"id": subscription_id, "lease": lease, "seconds": seconds}
    return cast(ClaimedSubscription | None, first(connection, sql("claim"), given))


def delivered(
    connection: Connection,
    claimed: ClaimedSubscription,
    upto: Place,
    *,
    count: int,
    answer: Mapping[str, Any] | None,
    seconds: float,
) -> bool:
    """Move a subscription's place, and renew its lease; False: the lease was lost, and nothing was changed.

    Args:
        connection: any.
        claimed: the subscription and its lease.
        upto: all events up to this place are delivered, or not wanted.
        count: how many of them were delivered now.
        answer: of the endpoint; None: none was asked for.
        seconds: from now on the lease holds for so long.
    """
    given = {"xid": str(upto[0]), "position": upto[1], "count": count, "answer": _text(answer), "seconds": seconds}
    return bool(connection.exec_driver_sql(sql("delivered"), given | _lease(claimed)).rowcount)


def failed(
    connection: Connection, claimed: ClaimedSubscription, answer: Mapping[str, Any], *, wait_seconds: float
) -> bool:
    """Keep why a delivery failed, and give the lease back: nobody tries before so many seconds; False: it was lost."""
    given = {"answer": _text(answer), "wait": wait_seconds}
    return bool(connection.exec_driver_sql(sql("failed"), given | _lease(claimed)).rowcount)


def release(connection: Connection, claimed: ClaimedSubscription) -> bool:
    """Give the lease back; False: it was lost."""
    return bool(connection.exec_driver_sql(_RELEASED, _lease(claimed)).rowcount)


def listed(
    connection: Connection, *, project: str | None = None, subscription_id: UUID | None = None, removed: bool = False
) -> list[SubscriptionRow]:
    """Subscriptions of one project or all, or a single one; those that were removed only if asked for."""
    given = {"project": project, "id": subscription_id, "removed": removed}
    return cast(list[SubscriptionRow], rows(connection, sql("listed"), given))


def counts(connection: Connection, *, seconds: float) -> dict[str, int]:
    """How many are `active` and `paused`; of the active, `failing` or `idle` (nobody delivers) for so many seconds."""
    found = connection.exec_driver_sql(_COUNTS, {"seconds": seconds})
    return {status: number for status, number in found}


def place_of_event(connection: Connection, event_id: UUID) -> Place | None:
    """Where an event stands in commit order; None: history has none of this id."""
    return _place(first(connection, _AT, {"id": event_id}))


def first_since(connection: Connection, since: datetime) -> Place | None:
    """Where the first event since an instant stands, archived ones included; None: there is none."""
    return _place(first(connection, _SINCE, {"since": since}))


def _place(row: Mapping[str, Any] | None) -> Place | None:
    return None if row is None else (row["xid"], row["position"])


def _lease(claimed: ClaimedSubscription) -> dict[str, UUID]:
    return {"id": claimed["subscription_id"], "lease": claimed["lease"]}


def _text(answer: Mapping[str, Any] | None) -> str | None:
    return None if answer is None else json.dumps(answer)
