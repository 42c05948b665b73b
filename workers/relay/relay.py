"""The durable relay: history, in true commit order, to every destination, each with a cursor of its own.

A cursor is in PostgreSQL and moves in the same transaction that read the events: what a destination writes through that
transaction it has exactly once; one that writes elsewhere (Redis, a file) gets a batch again that was written but not
committed, and says itself where it truly stands.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import closing
from typing import ClassVar

import structlog
from sqlalchemy import Connection, Engine, RowMapping

from db import history
from db.connect import transaction

BATCH = 1_000

Place = tuple[int, int]  # in commit order: transaction id, position

log = structlog.get_logger()


class Destination(ABC):
    """Where events are carried to. A subclass has a `name`, which is its cursor's, and says how to `carry`."""

    name: ClassVar[str]

    def stands_at(self, connection: Connection, cursor: Place) -> Place:
        """Where it truly stands, given where its cursor does: for one that keeps its own account."""
        return cursor

    @abstractmethod
    def carry(self, connection: Connection, events: Sequence[RowMapping]) -> None:
        """Take over a batch, in commit order, all of it or raise. Its cursor moves when `connection` commits.

        Args:
            connection: the transaction that holds the cursor; what is written through it is there exactly once.
            events: rows of `relay_batch.sql`, at least one.
        """

    def close(self) -> None:  # noqa: B027 - what opened nothing has nothing to give back
        """Give back what it opened."""


def relay(database: Engine, destinations: Sequence[Destination]) -> int:
    """Carry over to each destination every event that has become visible since its last call.

    Args:
        database: where history is.
        destinations: served one after the other; the failure of one does not hold up the others.

    Returns:
        How many events went to the destination that got most.

    Raises:
        Exception: what the first of those that failed raised; its cursor has not moved past what it confirmed.
    """
    most, failures = 0, []
    for destination in destinations:
        try:
            with closing(destination):
                most = max(most, _serve(database, destination))
        except Exception as error:  # whatever it is, the others are served first
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
            after = destination.stands_at(connection, cursor)
            events = history.batch(connection, after, limit=BATCH, archived=after < cursor)
            if not events:
                if after > cursor:  # it was killed before its cursor moved
                    history.advance(connection, destination.name, after)
                return carried
            destination.carry(connection, events)
            history.advance(connection, destination.name, (events[-1]["xid"], events[-1]["position"]))
        carried += len(events)
        if len(events) < BATCH:
            return carried
