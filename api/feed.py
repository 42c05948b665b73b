"""The events that are sent as they are committed: one reader for all event streams of the process.

PostgreSQL says what they are and in which order; the event bus only says when to look. A stream is a place in commit
order. It reads on from the newest events, which the process keeps once for all streams. A stream that is further behind
reads history until it has caught up, few at a time. So nothing is kept for a client that reads slowly or not at all.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from uuid import UUID
from weakref import WeakSet

import structlog

from interlock.api import holding
from interlock.api.announcements import Announcements
from interlock.api.inside import inside
from interlock.api.newest import Newest, StreamedEvent, streamed
from interlock.workers.access import tokens
from interlock.workers.client.async_client import AsyncRuntime
from interlock.workers.client.event_reader import committed_after, now
from interlock.workflows.audit.cursors import Place
from interlock.workflows.errors import InterlockError

log = structlog.get_logger()

MOST_STREAMS = 800  # of a process, which has 1,000 connections at most
BATCH = 500  # events of one look
CATCHING_UP = 2  # streams that read history at a time: others need connections, too
SHORTEST_SECONDS, LONGEST_SECONDS = 0.02, 0.5  # between two looks
SECONDS_EACH = 0.0004  # more between two looks for each stream, to each of which something may have to be sent
TOKENS_SECONDS = 1.0  # between two looks for tokens that are no longer in force


class TooManyStreams(InterlockError):
    """The process has as many event streams open as it may, or it ends. Wait, or ask another."""


class Listener:
    """An open stream: whose it is, and whether it is over."""

    def __init__(self, token_id: UUID) -> None:
        self.token_id, self.over = token_id, False


class Feed:
    """The events of one process, read while there is a stream."""

    def __init__(self, runtime: AsyncRuntime) -> None:
        self._runtime = runtime
        self._streams: WeakSet[Listener] = WeakSet()  # a stream ends with its request, however that ends
        self._newest: Newest | None = None
        self._reading: asyncio.Task[None] | None = None
        self._grown, self._catching_up = asyncio.Event(), asyncio.Semaphore(CATCHING_UP)
        self._tokens_until = 0.0
        self._stopped = False

    async def join(self, token_id: UUID) -> tuple[Listener, Place]:
        """A new stream, and the place behind which all events stand that are committed from now on.

        Raises:
            TooManyStreams: there are too many, or the process ends.
            TooManyHeld: there are too many of this token.
        """
        if self._stopped or len(self._streams) >= MOST_STREAMS:
            raise TooManyStreams(f"{len(self._streams)} event streams are open, and this process takes no more. Wait.")
        if sum(each.token_id == token_id for each in self._streams) >= holding.MOST_OF_A_TOKEN:
            raise holding.TooManyHeld("event streams open")
        stream = Listener(token_id)
        self._streams.add(stream)
        start = await inside(now, self._runtime.database)
        if self._reading is None or self._reading.done():
            self._newest = Newest(start)
            self._reading = asyncio.create_task(self._read(self._newest))
        return stream, start

    async def behind(self, place: Place, *, newly_read: bool = False) -> tuple[Sequence[StreamedEvent], Place]:
        """The next events behind a place, at once, and the place to go on from; the same one if there are none yet.

        Args:
            place: up to where the stream has come.
            newly_read: read history now, also what the next look would find.
        """
        assert self._newest is not None
        start, found = self._newest.start, None if newly_read else self._newest.behind(place)
        if found is None:
            async with self._catching_up:
                read = await inside(committed_after, self._runtime.database, place, limit=BATCH)
            found = [streamed(each) for each in read]
            if not found:  # and none is committed any more in front of where the newest ones began before this look
                return (), max(place, start)
        return found, found[-1].order if found else place

    async def grown(self, seconds: float) -> None:
        """Wait until there are more events, or a stream is over; for so many seconds at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._grown.wait()

    async def stop(self) -> None:
        """End all streams, and read no more."""
        self._stopped = True
        self._end(self._streams)
        if self._reading is not None:
            await self._reading

    def _end(self, streams: "Sequence[Listener] | WeakSet[Listener]") -> None:
        for each in streams:
            each.over = True
        self._wake()

    def _wake(self) -> None:
        self._grown.set()
        self._grown = asyncio.Event()

    async def _read(self, newest: Newest) -> None:
        announced = Announcements(self._runtime.settings.resolved_redis_url())
        pause = SHORTEST_SECONDS
        try:
            while self._streams and not self._stopped:
                grew = await self._look(newest)
                await asyncio.sleep(SHORTEST_SECONDS + SECONDS_EACH * len(self._streams))
                heard = await announced.wait(pause)
                pause = SHORTEST_SECONDS if grew or heard else min(pause * 2, LONGEST_SECONDS)
        finally:
            await announced.close()

    async def _look(self, newest: Newest) -> bool:
        """Whether there were more events; False too if the database does not answer, which is asked again."""
        try:
            found = await inside(committed_after, self._runtime.database, newest.end, limit=BATCH)
            newest.add(map(streamed, found))
            if found:
                self._wake()
            await self._end_revoked()
        except Exception as error:  # whatever it is, the streams stay where they are
            log.warning("events_unread", error=type(error).__name__)
            return False
        return bool(found)

    async def _end_revoked(self) -> None:
        clock = asyncio.get_running_loop().time()
        if clock < self._tokens_until:
            return
        self._tokens_until = clock + TOKENS_SECONDS
        held = {each.token_id for each in self._streams}
        in_force = await inside(tokens.in_force, self._runtime, held)
        self._end([each for each in self._streams if each.token_id in held - in_force])
