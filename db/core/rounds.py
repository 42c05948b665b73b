"""A round of applying triggers in two calls to PostgreSQL: one locks and reads, one writes."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, TypedDict, cast
from uuid import UUID

from sqlalchemy import Connection

from interlock.db.core.request_rows import Origin
from interlock.db.core.requests import refusing
from interlock.db.fast_path import rows
from interlock.db.schema import in_schema, lock_number
from interlock.db.statements import Rows, as_json, queries
from interlock.workflows.definition import Authority

sql = queries(__file__)

BATCH = 500  # requests in one commit: a bigger batch gains nothing and holds its locks longer
PARTITION_LOCK = lock_number(0x1E71)  # the advisory locks' namespace
GATHER = in_schema("SELECT * FROM interlock.gather(%(namespace)s, %(partition)s, %(limit)s, NULL, true)")
GATHER_FOR = in_schema(
    "SELECT * FROM interlock.gather_for(%(namespace)s, %(instances)s::uuid[], %(limit)s, true) ORDER BY seq"
)

# Two functions in one round trip: the statements of the second one see what the first one wrote.
ACCEPT_AND_GATHER = in_schema("""
WITH accepted AS MATERIALIZED (SELECT request_id, workflow_id, status FROM interlock.accept_all(%(rows)s::json))
SELECT a.request_id AS accepted, a.status, g.*
  FROM accepted a
  FULL JOIN interlock.gather_for(
                %(namespace)s,
                ARRAY(SELECT workflow_id FROM accepted WHERE request_id <> ALL (%(later)s::text[])),
                %(limit)s, false) g USING (request_id)
 ORDER BY g.seq
""")


class Due(TypedDict):
    """A due request with its instance: the columns of `interlock.gather`. JSON that cannot be read is `Unreadable`;
    `handover_id`: what freezes the instance (HANDOVER-1); None: nothing."""

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
    handover_id: UUID | None


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


def gather(connection: Connection, partition: int, *, limit: int) -> list[Due]:
    """Lock a partition and the instances of its due requests; returns these requests, oldest first.

    Args:
        connection: the round's transaction.
        partition: the partition's number.
        limit: the most requests to return.
    """
    given = {"namespace": PARTITION_LOCK, "partition": partition, "limit": limit}
    return cast(list[Due], rows(connection, GATHER, given))


def gather_for(connection: Connection, instance_ids: Collection[UUID], *, limit: int = BATCH) -> list[Due]:
    """Lock instances' partitions, and those of them that have due requests; returns these requests, oldest first.

    Args:
        connection: the round's transaction.
        instance_ids: the instances.
        limit: the most requests to return of each partition.
    """
    given = {"namespace": PARTITION_LOCK, "instances": list(instance_ids), "limit": limit}
    return cast(list[Due], rows(connection, GATHER_FOR, given))


def accept_and_gather(connection: Connection, wanted: Rows, later: Collection[str]) -> tuple[dict[str, str], list[Due]]:
    """Accept requests, and gather what is due for their instances, as `gather_for` does, but without waiting.

    For callers that hold other locks: what is due in a partition that somebody else has is left out.

    Args:
        connection: the round's transaction.
        wanted: the requests, as `requests.accept` takes them.
        later: the ids of those whose instances are left out.

    Returns:
        The status of each request that was not known, by its id; and the due requests, oldest first.

    Raises:
        UnknownInstance, NotYours: as `requests.accept`.
    """
    given = {"rows": as_json(wanted), "namespace": PARTITION_LOCK, "later": list(later), "limit": BATCH}
    with refusing("accept_all", wanted):
        found = rows(connection, ACCEPT_AND_GATHER, given)
    accepted = {row["accepted"]: row["status"] for row in found if row["accepted"] is not None}
    return accepted, cast(list[Due], [row for row in found if row["seq"] is not None])


def write(connection: Connection, *, moves: Rows, events: Rows, settled: Rows) -> Written:
    """Move instances, append events in the order given, and settle requests, all in one round trip.

    Raises:
        DBAPIError: PostgreSQL refuses an event or a state.
    """
    parameters = {"moves": as_json(moves), "events": as_json(events), "settled": as_json(settled)}
    (counts,) = rows(connection, sql("round"), parameters)
    return Written(**counts)
