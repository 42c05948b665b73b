"""Stalled partitions: they have due requests, and none is applied. The sweep `partitions` finds and rescues them."""

from collections.abc import Sequence

from sqlalchemy import Connection, RowMapping

from interlock.db.schema import in_schema, lock_number
from interlock.db.statements import queries

sql = queries(__file__)

RESCUE_LOCK = lock_number(0x1E73)  # the advisory locks' namespace
LATE_SECONDS = 5.0  # a partition is watched once a request has been due for this long
STALLED_SECONDS = 10.0  # a partition is stalled once its oldest request has not changed for this long

_STALLED = in_schema("""
SELECT w.partition, extract(epoch FROM now() - w.since)::float8 AS seconds, w.begun > 1 AS alone,
       r.request_id, r.trigger, r.triggered_by, i.workflow_type, i.entity_id
  FROM interlock.partition_watch w
  JOIN interlock.trigger_requests r ON r.seq = w.head AND r.status = 'pending'
  JOIN interlock.workflow_instances i ON i.id = r.workflow_id
 WHERE w.since < now() - make_interval(secs => %(seconds)s)
 ORDER BY w.since
""")
_SUSPECT = in_schema("""
UPDATE interlock.partition_watch
   SET strikes = CASE WHEN suspect = %(seq)s THEN strikes + 1 ELSE 1 END, suspect = %(seq)s
 WHERE partition = %(partition)s RETURNING strikes
""")

# The next request of a partition that could be applied, behind one that was looked at.
_NEXT = in_schema("""
SELECT p.seq, p.request_id, p.workflow_id
  FROM interlock.trigger_requests p
 WHERE p.status = 'pending' AND p.partition = %(partition)s AND p.seq > %(after)s
   AND NOT EXISTS (SELECT FROM interlock.trigger_requests b
                    WHERE b.workflow_id = p.workflow_id AND b.status = 'scheduled' AND b.attempts > 0
                      AND b.seq < p.seq AND p.origin <> 'override')
 ORDER BY p.seq LIMIT 1
""")


def watch(connection: Connection) -> list[int]:
    """Update the watch on partitions; returns those stalled or being applied one request at a time."""
    parameters = {"late_seconds": LATE_SECONDS, "stands_seconds": STALLED_SECONDS}
    return [int(row[0]) for row in connection.exec_driver_sql(sql("watch_partitions"), parameters)]


def stalled(connection: Connection) -> Sequence[RowMapping]:
    """The stalled partitions, each with its oldest request and for how many seconds it has not changed."""
    return connection.exec_driver_sql(_STALLED, {"seconds": STALLED_SECONDS}).mappings().all()


def begin(connection: Connection, partition: int) -> int | None:
    """Record that a round begins; returns how many began and did not end, this one included. None: not stalled."""
    query = in_schema("UPDATE interlock.partition_watch SET begun = begun + 1 WHERE partition = %s RETURNING begun")
    found = connection.exec_driver_sql(query, (partition,)).scalar_one_or_none()
    return None if found is None else int(found)


def end(connection: Connection, partition: int) -> None:
    """Record that the round ended, so no request crashes its process."""
    connection.exec_driver_sql(
        in_schema("UPDATE interlock.partition_watch SET begun = 0 WHERE partition = %s"), (partition,)
    )


def following(connection: Connection, partition: int, after: int) -> RowMapping | None:
    """(seq, request_id, workflow_id) of the next request after `after` that can be applied."""
    return connection.exec_driver_sql(_NEXT, {"partition": partition, "after": after}).mappings().first()


def suspect(connection: Connection, partition: int, seq: int) -> int:
    """Record that a request is about to be applied alone; returns how often that was begun, this time included."""
    strikes = connection.exec_driver_sql(_SUSPECT, {"partition": partition, "seq": seq}).scalar_one_or_none()
    return 1 if strikes is None else int(strikes)


def clear(connection: Connection, partition: int) -> None:
    """Record that the request applied alone came to its end."""
    connection.exec_driver_sql(
        in_schema("UPDATE interlock.partition_watch SET suspect = NULL, strikes = 0 WHERE partition = %s"), (partition,)
    )
