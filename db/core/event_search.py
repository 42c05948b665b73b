"""Searches history: which events match, newest first, also those of the archive.

No index serves each filter: every index would cost each move. A search reads a bounded number of events instead, and
says how far back it looked, so that the next one goes on from there.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypedDict, cast
from uuid import UUID

from sqlalchemy import Connection

from interlock.db.fast_path import rows
from interlock.db.statements import queries

sql = queries(__file__)

LOOK = 10_000  # events that one search reads
EARLIEST, LATEST = UUID(int=0), UUID(int=2**128 - 1)
# Ids are made before their events commit, by the clocks of other machines.
SLACK = timedelta(minutes=10)


class FoundEvent(TypedDict):
    """An event that was found, with the name and the project of its instance."""

    id: UUID
    workflow_id: UUID
    seq: int
    workflow_type: str
    entity_id: str
    project: str
    from_state: str
    to_state: str
    trigger: str
    triggered_by: str | None
    authority: str
    severity: str
    reason: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class EventFilter:
    """What is searched for. Each is left out if it is None.

    Attributes:
        projects: events of these projects.
        name: of the instances with this entity id.
        type, trigger, state, by: of this type, by this trigger, into this state, by this actor.
        since, until: from the one instant on, and before the other one.
    """

    projects: Collection[str] | None = None
    name: str | None = None
    type: str | None = None
    trigger: str | None = None
    state: str | None = None
    by: str | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class FoundEvents:
    """A page of a search.

    Attributes:
        events: newest first.
        next: where the next page begins; None: everything was looked at.
    """

    events: list[FoundEvent]
    next: UUID | None


def search(
    connection: Connection, wanted: EventFilter, *, before: UUID | None = None, limit: int = 50, look: int = LOOK
) -> FoundEvents:
    """Search history, newest first.

    Args:
        connection: any.
        wanted: the filter.
        before: `next` of the page before this one.
        limit: the most events to return.
        look: the most events to read, unless a name is given.

    Returns:
        Events whose instants are those of the filter. There may be fewer than `limit` although there is a next page.
    """
    first = LATEST if wanted.until is None else _id_at(wanted.until, SLACK)
    given = {
        "before": first if before is None else before,
        "since": EARLIEST if wanted.since is None else _id_at(wanted.since, -SLACK),
        "projects": None if wanted.projects is None else list(wanted.projects),
        "limit": limit + 1,
        "look": look,
        **{each: getattr(wanted, each) for each in ("name", "type", "trigger", "state", "by")},
    }
    found = rows(connection, sql("named" if wanted.name else "search"), given)
    events = [cast(FoundEvent, each) for each in found if each["id"] is not None]
    return FoundEvents([each for each in events[:limit] if _within(each, wanted)], _next(found, events, limit, look))


def _next(found: list[dict[str, object]], events: list[FoundEvent], limit: int, look: int) -> UUID | None:
    if len(events) > limit:
        return events[limit - 1]["id"]
    if found and found[0].get("looked") == look:
        return cast(UUID, found[0]["oldest"])
    return None


def _within(event: FoundEvent, wanted: EventFilter) -> bool:
    return (wanted.since or event["created_at"]) <= event["created_at"] and (
        wanted.until is None or event["created_at"] < wanted.until
    )


def _id_at(instant: datetime, later: timedelta) -> UUID:
    """The lowest UUIDv7 of so much after an instant (RFC 9562, 5.7: its first 48 bits are milliseconds since 1970)."""
    since = instant.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC) + later  # a span, which has years 0 and 10,000
    milliseconds = since // timedelta(milliseconds=1)
    return UUID(int=min(max(milliseconds, 0), 2**48 - 1) << 80)
