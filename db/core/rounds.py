"""A round of applying triggers, as PostgreSQL sees it: one call that locks and gathers, one that writes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from interlock.db.connection import sql
from interlock.db.fast_path import rows
from interlock.db.schema import in_schema, lock_number
from interlock.db.statements import Rows, as_json

PARTITION_LOCK = lock_number(0x1E71)  # the advisory locks' namespace
GATHER = in_schema("SELECT * FROM interlock.gather(%(namespace)s, %(partition)s, %(limit)s, %(only)s)")

Due = Mapping[str, Any]  # a request that is due, with the instance it is meant for: the columns of `interlock.gather`


@dataclass(frozen=True, slots=True)
class Written:
    """How many rows a round wrote; fewer than were given means that something went around the partition's lock."""

    moved: int
    appended: int
    settled: int


def lock(connection: Connection, partition: int) -> None:
    """Be the only decider for a partition's instances until this transaction ends; waits for its turn."""
    connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%s, %s)", (PARTITION_LOCK, partition))


def gather(connection: Connection, partition: int, *, limit: int, only: UUID | None = None) -> Sequence[Due]:
    """Lock a partition, and its due requests' instances, for this transaction; the requests, oldest first.

    Args:
        connection: the round's transaction.
        partition: which share of the instances.
        limit: at most so many requests.
        only: those of one instance.
    """
    return rows(connection, GATHER, {"namespace": PARTITION_LOCK, "partition": partition, "limit": limit, "only": only})


def write(connection: Connection, *, moves: Rows, events: Rows, settled: Rows) -> Written:
    """Move instances, append events in the order given, and settle requests, all in one round trip.

    Raises:
        DBAPIError: PostgreSQL refuses an event or a state.
    """
    given = {"moves": as_json(moves), "events": as_json(events), "settled": as_json(settled)}
    (counts,) = rows(connection, sql("round"), given)
    return Written(**counts)
