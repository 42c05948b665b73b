"""Reads all events, as they are committed, from a cursor on: `Client.events` (EVENT-18).

They come from the Redis stream, which costs PostgreSQL nothing. Each entry names the one before it. Where that is not
the last event read, something was trimmed or lost with Redis, and the events in between are read from history; so they
are where there is no Redis, or none that answers.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from time import monotonic
from typing import Any
from uuid import UUID

from sqlalchemy import Engine

from interlock.db.connection import transaction
from interlock.db.core import history
from interlock.workers.broker.event_stream import STREAM, entry_id
from interlock.workers.client.committed_event import CommittedEvent
from interlock.workers.runtime import Runtime
from interlock.workflows.audit.cursors import Place, cursor_of, named, order_of, place_of, text_of
from interlock.workflows.audit.ids import event_name
from interlock.workflows.input.json_text import read

BATCH = 500
WAIT_MILLISECONDS = 1_000  # for the next entry: less than the socket's time-out
QUIET_SECONDS = 5.0  # so long without an entry, and history is looked at: the relay or Redis may be away
PAUSE_SECONDS = 0.5  # between two looks at history where there is no stream

Entry = tuple[bytes, Mapping[bytes, bytes]]


class EventReader:
    """Reads in batches, each event once, in commit order.

    Args:
        runtime: whose history and stream.
        cursor: the event to go on after; None: from now on.
        project: only events of this project; None: of all.
        types: only events of these types; empty: of all.
    """

    def __init__(
        self, runtime: Runtime, *, cursor: str | None, project: str | None, types: Collection[str] = ()
    ) -> None:
        self._runtime, self._project, self._types = runtime, project, frozenset(types)
        self._order: Place | None = None if cursor is None else order_of(cursor)
        self._looked_at = float("-inf")

    def batch(self) -> Sequence[CommittedEvent]:
        """The next events; empty if there are none yet, after a wait of about a second.

        Raises:
            DBAPIError: history is needed, and PostgreSQL is away.
            BadInput: the cursor is of another database.
        """
        if self._order is None:
            self._order = now(self._runtime.database)
        if (found := self._streamed(self._order)) is None:
            found = self._of_history()
            if not found:
                self._runtime.pause(PAUSE_SECONDS)
        return [each for each in found if self._wants(each)]

    def _wants(self, event: CommittedEvent) -> bool:
        return self._project in (None, event.project) and (not self._types or event.type in self._types)

    def _streamed(self, order: Place) -> Sequence[CommittedEvent] | None:
        """The stream's next entries; None: history must be asked instead."""
        redis = self._runtime.redis
        if redis is None:
            return None
        from redis.exceptions import RedisError  # noqa: PLC0415 - who reads no events need not wait for its import

        try:
            answer: Any = self._runtime.blocking(
                lambda: redis.xread({STREAM: entry_id(order)}, count=BATCH, block=WAIT_MILLISECONDS)
            )
        except RedisError:
            return None
        entries: list[Entry] = answer[0][1] if answer else []
        found = []
        for id_, fields in entries:
            if fields.get(b"after") != entry_id(order).encode():
                break  # what is before it is missing
            order = _order(id_)
            found.append(_from_entry(order, fields))
        if entries or monotonic() - self._looked_at < QUIET_SECONDS:
            self._order = order
            return found if found or not entries else None
        return None

    def _of_history(self) -> Sequence[CommittedEvent]:
        assert self._order is not None
        found = committed_after(self._runtime.database, self._order, limit=BATCH)
        if found:
            self._order = order_of(found[-1].cursor)
        else:
            self._looked_at = monotonic()
        return found


def now(database: Engine) -> Place:
    """The place behind which all events stand that are committed from now on, and some that were just before."""
    with transaction(database) as connection:
        xid, position = history.horizon(connection)
        return named(xid, history.epochs(connection)), position


def committed_after(database: Engine, order: Place, *, limit: int) -> Sequence[CommittedEvent]:
    """The next events behind a place, from history and its archive, in commit order.

    Args:
        database: where history is.
        order: the place, as cursors say it.
        limit: events at most. If there are fewer, none is committed any more in front of what `now` said before.

    Raises:
        BadInput: the place is of another database.
    """
    with transaction(database) as connection:
        restored = history.epochs(connection)
        place = place_of(order, restored)
        archived = history.is_archived_after(connection, place)
        rows = history.batch(connection, place, limit=limit, archived=archived)
    return [_from_row(dict(row), restored) for row in rows]


def _order(entry: bytes) -> Place:
    xid, _, position = entry.decode().partition("-")
    return int(xid), int(position)


def _from_entry(order: Place, fields: Mapping[bytes, bytes]) -> CommittedEvent:
    said: dict[str, Any] = {name.decode(): value.decode() for name, value in fields.items()}
    read_values = {
        "workflow_type": said["type"],
        "workflow_id": UUID(said["workflow_id"]),
        "seq": int(said["seq"]),
        "named_event": said["named_event"] or None,
        "metadata": read(said["metadata"]),
        "created_at": datetime.fromisoformat(said["created_at"]),
    }
    return _event(text_of(order), said["event_id"], said | read_values)


def _from_row(row: Mapping[str, Any], restored: Sequence[int]) -> CommittedEvent:
    return _event(cursor_of((row["xid"], row["position"]), restored), event_name(row["id"]), row)


def _event(cursor: str, event_id: str, row: Mapping[str, Any]) -> CommittedEvent:
    return CommittedEvent(
        cursor=cursor,
        event_id=event_id,
        project=str(row["project"]),
        type=row["workflow_type"],
        entity_id=row["entity_id"],
        workflow_id=row["workflow_id"],
        seq=row["seq"],
        from_state=row["from_state"],
        to_state=row["to_state"],
        trigger=row["trigger"],
        by=row["triggered_by"] or "",
        request_id=row["request_id"] or "",
        severity=row["severity"],
        named_event=row["named_event"],
        metadata=row["metadata"],
        created_at=row["created_at"],
    )
