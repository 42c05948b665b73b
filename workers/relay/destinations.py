"""The destinations of the relay, as the settings choose them."""

from collections.abc import Sequence

from sqlalchemy import Connection, RowMapping

from interlock.db.core import counters
from interlock.workers.relay.journal import Journal
from interlock.workers.relay.redis_stream import Stream
from interlock.workers.relay.relay import Destination
from interlock.workers.runtime import Runtime


class Counters(Destination):
    """Counts the events of history: each exactly once, because they are written in the cursor's transaction."""

    name = counters.CURSOR

    def carry(self, connection: Connection, events: Sequence[RowMapping]) -> None:
        """Add a batch of events to the counters."""
        counters.count(connection, [event["id"] for event in events])


def destinations(runtime: Runtime) -> list[Destination]:
    """The destinations that the settings turn on. None of them has opened anything yet."""
    chosen: list[Destination] = [Counters()]
    if runtime.redis is not None:
        chosen.append(Stream(runtime.redis, maxlen=runtime.settings.stream_maxlen))
    if runtime.settings.journal:
        chosen.append(journal(runtime))
    return chosen


def journal(runtime: Runtime) -> Journal:
    """The journal that the settings describe, not opened yet."""
    chosen = runtime.settings
    return Journal(chosen.state_directory, max_bytes=chosen.journal_bytes, daily=chosen.journal_daily)
