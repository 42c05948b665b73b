"""Events: every move as it is committed, as server-sent events (HTML Living Standard, section 9.2)."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Header, Query
from pydantic import Field
from starlette.responses import StreamingResponse
from starlette.types import Send

from interlock.api.access import Called
from interlock.api.feed import Feed, Listener
from interlock.api.models import Text
from interlock.api.newest import StreamedEvent
from interlock.api.parameters import Project
from interlock.api.problems import Responses, documented
from interlock.workers.client.committed_event import CommittedEvent
from interlock.workflows.audit.cursors import Place, not_ahead, order_of, text_of
from interlock.workflows.input.names import NAME_LIMIT
from interlock.workflows.subscription_terms import MOST_NAMES

router = APIRouter(tags=["events"])

RETRY_MILLISECONDS = 2_000
HEARTBEAT_SECONDS = 15.0
CHUNK_BYTES = 32_768  # of events that are sent together; a slow client is owed little more
DAY_SECONDS = 86_400.0

Names = list[Annotated[Text, Field(max_length=NAME_LIMIT)]] | None


class EventStream(StreamingResponse):
    """Server-sent events, from an asynchronous generator, which is closed with the connection."""

    media_type = "text/event-stream"

    def __init__(self, blocks: AsyncIterator[bytes]) -> None:
        super().__init__(blocks, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})

    async def stream_response(self, send: Send) -> None:
        """Send what the generator gives."""
        async with aclosing(self.body_iterator):  # type: ignore[type-var] # a generator
            await super().stream_response(send)


@dataclass(frozen=True, slots=True)
class StreamFilter:
    """Which events are sent. `projects`: None for all; of an empty list of names, all."""

    projects: frozenset[str] | None
    types: frozenset[str]
    states: frozenset[str]

    def want(self, event: StreamedEvent) -> bool:
        """Whether an event is sent."""
        return (
            (self.projects is None or event.project in self.projects)
            and (not self.types or event.type in self.types)
            and (not self.states or event.state in self.states)
        )


STREAM: Responses = {
    200: {"model": CommittedEvent, "description": "Server-sent events; `data` of each is such JSON, `id` its `cursor`"}
}


@router.get("/events", status_code=200, response_class=EventStream, responses=STREAM | documented())
async def stream_events(  # noqa: PLR0917 - its filters
    caller: Called,
    project: Project = None,
    type: Annotated[Names, Query(max_length=MOST_NAMES, description="Only of this type; repeat it.")] = None,
    state: Annotated[Names, Query(max_length=MOST_NAMES, description="Only those that enter it; repeat it.")] = None,
    after: Annotated[Text | None, Query(description="The cursor to go on after; `0`: from the first event on.")] = None,
    wait: Annotated[float | None, Query(ge=0, le=DAY_SECONDS, description="End after so many seconds.")] = None,
    last_event_id: Annotated[Text | None, Header(description="As `after`, from a client that reconnects.")] = None,
) -> EventStream:
    """Follow every move as it is committed, each once and in commit order, of one project or of all the token covers.

    Without a cursor it begins now. A block with an `id` and no `data` only says where the stream stands: keep its id,
    too, as browsers do.
    """
    chosen = StreamFilter(caller.projects(project), frozenset(type or ()), frozenset(state or ()))
    asked = last_event_id or after
    order = None if asked is None else order_of(asked)
    feed = caller.access.feed
    stream, now = await feed.join(caller.principal.token_id)
    place = now if order is None else not_ahead(order, now)
    return EventStream(_blocks(feed, stream, chosen, place, wait))


async def _blocks(
    feed: Feed, stream: Listener, chosen: StreamFilter, place: Place, wait: float | None
) -> AsyncIterator[bytes]:
    clock = asyncio.get_running_loop().time
    until = float("inf") if wait is None else clock() + wait
    said, spoke = place, clock()
    yield f"retry: {RETRY_MILLISECONDS}\nid: {text_of(place)}\n\n".encode()
    while not stream.over:
        before = place
        last = clock() >= until
        found, place = await feed.behind(before, newly_read=last)
        for chunk in _chunks(each for each in found if chosen.want(each)):
            yield chunk
            said, spoke = place, clock()
        if place != before:
            continue
        if last:
            break
        if clock() >= spoke + HEARTBEAT_SECONDS:
            yield b":\n\n" if said == place else f"id: {text_of(place)}\n\n".encode()
            said, spoke = place, clock()
        await feed.grown(min(spoke + HEARTBEAT_SECONDS, until) - clock())


def _chunks(events: Iterable[StreamedEvent]) -> Iterable[bytes]:
    """The events' texts, several together, as long as they are not large."""
    held = b""
    for each in events:
        if held and len(held) + len(each.text) > CHUNK_BYTES:
            yield held
            held = b""
        held += each.text
    if held:
        yield held
