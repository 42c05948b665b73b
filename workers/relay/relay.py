"""The durable relay: carries history, in true commit order, to every destination. Each destination has its own cursor.

A cursor is in PostgreSQL and moves in the transaction that read the events. A destination that writes through that
transaction gets each event exactly once. One that writes elsewhere (Redis, a file) may get a batch again that was
written but not committed; it finds out by itself how far it got.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import closing
from typing import ClassVar

import structlog
from sqlalchemy import Connection, Engine, RowMapping

from interlock.db.connection import single_statements, transaction
from interlock.db.core import history

BATCH = 1_000

Place = tuple[int, int]  # a place in commit order: transaction id, position

log = structlog.get_logger()


class Destination(ABC):
    """A target of the relay. A subclass sets `name`, which is also its cursor's, and implements `carry`."""

    name: ClassVar[str]

    def lost(self, connection: Connection) -> bool:
        """Whether it may not stand where its cursor does, if it keeps its own account. A look that locks nothing."""
        return False

    def position(self, connection: Connection, cursor: Place) -> Place:
        """The last event that the destination really holds. Destinations with their own record override this."""
        return cursor

    @abstractmethod
    def carry(self, connection: Connection, events: Sequence[RowMapping]) -> None:
        """Write a whole batch, in commit order, or raise. The cursor moves when `connection` commits.

        Args:
            connection: the transaction that holds the cursor; rows written through it are there exactly once.
            events: rows of `event_rows.sql`, at least one.
        """

    def close(self) -> None:  # noqa: B027 - what opened nothing has nothing to give back
        """Close what it opened."""


def relay(database: Engine, destinations: Sequence[Destination]) -> int:
    """Carry to each destination every event that has become visible since its last call.

    Args:
        database: where history is.
        destinations: served one after the other; the failure of one does not hold up the others.

    Returns:
        The number of events carried to the destination that got the most.

    Raises:
        Exception: the first error of a destination; its cursor has not moved past what it confirmed.
    """
    most, failures = 0, []
    with single_statements(database) as connection:  # reads without locks, because mostly there is nothing to do
        behind = history.behind(connection, [destination.name for destination in destinations])
        behind |= {each.name for each in destinations if each.name not in behind and each.lost(connection)}
    for destination in destinations:
        if destination.name not in behind:
            continue
        try:
            with closing(destination):
                most = max(most, _serve(database, destination))
        except Exception as error:  # whatever it is, serve the others first
            log.warning("relay_failed", destination=destination.name, error=str(error))
            failures.append(error)
    if failures:
        raise failures[0]
    return most


def _serve(database: Engine, destination: Destination) -> int:
    carried = 0
    while True:
        with transaction(database) as connection:
            cursor = history.cursor(connection, destination.name)
            after = destination.position(connection, cursor)
            events = history.batch(connection, after, limit=BATCH, archived=after < cursor)
            if not events:
                if after > cursor:  # the process was killed before the cursor moved
                    history.advance(connection, destination.name, after)
                return carried
            destination.carry(connection, events)
            history.advance(connection, destination.name, (events[-1]["xid"], events[-1]["position"]))
        carried += len(events)
        if len(events) < BATCH:
            return carried
