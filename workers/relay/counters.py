"""The relay's counters. Each event counts exactly once, because they are written in the cursor's transaction."""

from collections.abc import Sequence

from sqlalchemy import Connection, RowMapping

from interlock.db.core import counters
from interlock.workers.relay.relay import Destination


class Counters(Destination):
    """Counts the events of history."""

    name = counters.CURSOR

    def carry(self, connection: Connection, events: Sequence[RowMapping]) -> None:
        """Add a batch of events to the counters."""
        counters.count(connection, [event["id"] for event in events])
