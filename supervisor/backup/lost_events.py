"""Events that were committed after a backup was taken, as far as the journal or the Redis stream has them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import UUID

from redis import Redis
from sqlalchemy import Engine

from interlock.db.connection import transaction
from interlock.db.core import history
from interlock.workers.broker.event_stream import STREAM
from interlock.workflows.errors import BadInput
from interlock.workflows.input.json_text import read

AT_ONCE = 2_000
MARGIN = timedelta(minutes=10)  # covers transactions that were running while the backup was taken


@dataclass(frozen=True, slots=True)
class PublishedEvent:
    """An event as published in the journal or the stream."""

    workflow_id: UUID
    seq: int
    event_id: str
    entity: str
    trigger: str
    to_state: str
    at: str


def of_journal(place: Path, since: datetime) -> Iterator[PublishedEvent]:
    """The events of a journal (a directory or one file) from shortly before `since` on.

    Raises:
        BadInput: there is no journal, or a line is not an event.
    """
    files = sorted(place.glob("transitions*.jsonl")) if place.is_dir() else [place]
    if not files or not files[0].exists():
        raise BadInput(f"no journal at {place}; give the directory of transitions.jsonl, or that file")
    for file in files:
        with file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    event = _from_journal(read(line))
                except (ValueError, KeyError, TypeError) as error:
                    raise BadInput(f"{file}, line {number}: not an event of the journal ({error})") from error
                if datetime.fromisoformat(event.at) > since - MARGIN:
                    yield event


def of_stream(redis: "Redis", since: datetime) -> Iterator[PublishedEvent]:
    """The events of the stream `interlock:events` from shortly before `since` on."""
    after = "-"
    while entries := redis.xrange(STREAM, min=after, count=AT_ONCE):
        for _, each in entries:
            fields: dict[str, Any] = {_text(key): _text(value) for key, value in (each or {}).items()}
            if datetime.fromisoformat(fields["created_at"]) > since - MARGIN:
                yield _event(fields)
        after = f"({_text(entries[-1][0])}"


def lost(database: Engine, published: Iterable[PublishedEvent]) -> list[PublishedEvent]:
    """The events that are missing in history.

    Raises:
        DBAPIError: the database does not answer.
    """
    missing: list[PublishedEvent] = []
    events = iter(published)
    while batch := list(islice(events, AT_ONCE)):
        with transaction(database) as connection:
            indexes = history.missing(connection, [(each.workflow_id, each.seq, each.event_id) for each in batch])
        missing += [batch[place] for place in indexes]
    return missing


def _from_journal(event: dict[str, Any]) -> PublishedEvent:
    at = event["timestamp"].replace("Z", "+00:00")
    return _event({**event["context"], **event, "type": event["entity_type"], "created_at": at})


def _event(fields: Mapping[str, Any]) -> PublishedEvent:
    return PublishedEvent(
        UUID(fields["workflow_id"]),
        int(fields["seq"]),
        fields["event_id"],
        f"{fields['type']}/{fields['entity_id']}",
        fields["trigger"],
        fields["to_state"],
        fields["created_at"],
    )


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
