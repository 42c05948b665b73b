"""A round of applying triggers in two calls to PostgreSQL: one locks and reads, one writes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, cast
from uuid import UUID

from sqlalchemy import Connection

from interlock.db.core.request_rows import Origin
from interlock.db.fast_path import rows
from interlock.db.schema import in_schema, lock_number
from interlock.db.statements import Rows, as_json, queries
from interlock.workflows.definition import Authority

sql = queries(__file__)

PARTITION_LOCK = lock_number(0x1E71)  # the advisory locks' namespace
GATHER = in_schema("SELECT * FROM interlock.gather(%(namespace)s, %(partition)s, %(limit)s, %(only)s)")


class Due(TypedDict):
    """A due request with its instance: the columns of `interlock.gather`. JSON that cannot be read is `Unreadable`."""

    seq: int
    request_id: str
    trigger: str
    triggered_by: str
    metadata: dict[str, Any]
    origin: Origin
    authority: Authority
    bound_version: int | None
    attempts: int
    granted: bool
    workflow_id: UUID
    workflow_type: str
    definition_version: str
    current_state: str
    version: int
    context: dict[str, Any]
    project: str
    entity_id: str
    trace: str | None


@dataclass(frozen=True, slots=True)
class Written:
    """How many rows a round wrote. Fewer than given: somebody changed rows without the partition's lock."""

    moved: int
    appended: int
    settled: int


def lock(connection: Connection, partition: int) -> None:
    """Take a partition's lock until this transaction ends, so that nobody else decides there. Waits for the lock."""
    connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%s, %s)", (PARTITION_LOCK, partition))


def lock_all(connection: Connection, partitions: int) -> None:
    """Take the locks of all partitions, as `lock` does and in ascending order, in one round trip."""
    connection.exec_driver_sql(
        "SELECT pg_advisory_xact_lock(%s, partition) FROM generate_series(0, %s) AS partition",
        (PARTITION_LOCK, partitions - 1),
    )


def gather(connection: Connection, partition: int, *, limit: int, only: UUID | None = None) -> Sequence[Due]:
    """Lock a partition and the instances of its due requests; returns these requests, oldest first.

    Args:
        connection: the round's transaction.
        partition: the partition's number.
        limit: the most requests to return.
        only: only requests of this instance.
    """
    given = {"namespace": PARTITION_LOCK, "partition": partition, "limit": limit, "only": only}
    return cast(list[Due], rows(connection, GATHER, given))


def write(connection: Connection, *, moves: Rows, events: Rows, settled: Rows) -> Written:
    """Move instances, append events in the order given, and settle requests, all in one round trip.

    Raises:
        DBAPIError: PostgreSQL refuses an event or a state.
    """
    parameters = {"moves": as_json(moves), "events": as_json(events), "settled": as_json(settled)}
    (counts,) = rows(connection, sql("round"), parameters)
    return Written(**counts)
