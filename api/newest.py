"""The newest events in commit order, kept once for all event streams of a process, in bounded memory."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from interlock.workers.client.committed_event import CommittedEvent
from interlock.workflows.audit.cursors import Place, order_of
from interlock.workflows.output.escaping import json_text, plain

MOST_EVENTS, MOST_BYTES = 2_000, 8 * 2**20


@dataclass(frozen=True, slots=True)
class StreamedEvent:
    """An event as it is sent, and what streams choose it by.

    Attributes:
        order: its place in commit order.
        project, type, state: of its instance; the state that it enters.
        text: its block of `text/event-stream`.
    """

    order: Place
    project: str
    type: str
    state: str
    text: bytes


def streamed(event: CommittedEvent) -> StreamedEvent:
    """An event, printed once for whoever it is sent to."""
    text = f"id: {event.cursor}\ndata: {json_text(asdict(event), default=plain)}\n\n".encode()
    return StreamedEvent(order_of(event.cursor), event.project, event.type, event.to_state, text)


class Newest:
    """What was committed behind `start`, up to now.

    Args:
        start: a place behind which nothing is missing.
    """

    def __init__(self, start: Place) -> None:
        self.start = start
        self._orders: list[Place] = []
        self._events: list[StreamedEvent] = []
        self._bytes = 0

    @property
    def end(self) -> Place:
        """The place of the newest event."""
        return self._orders[-1] if self._orders else self.start

    def add(self, events: Iterable[StreamedEvent]) -> None:
        """Add the events behind the newest one. If there are too many, the older half is forgotten."""
        for each in events:
            self._orders.append(each.order)
            self._events.append(each)
            self._bytes += len(each.text)
        while len(self._events) > MOST_EVENTS or (self._bytes > MOST_BYTES and len(self._events) > 1):
            self._forget((len(self._events) + 1) // 2)

    def behind(self, place: Place) -> Sequence[StreamedEvent] | None:
        """The events behind a place; None: some of them are forgotten."""
        if place < self.start:
            return None
        return self._events[bisect_right(self._orders, place) :]

    def _forget(self, count: int) -> None:
        self.start = self._orders[count - 1]
        self._bytes -= sum(len(each.text) for each in self._events[:count])
        del self._orders[:count], self._events[:count]
