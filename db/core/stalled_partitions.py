"""Stalled partitions: requests are due there and none is applied. The sweep `partitions` finds and applies them."""

from collections.abc import Sequence

from sqlalchemy import Connection, RowMapping

from interlock.db.connection import sql
from interlock.db.schema import in_schema, lock_number

RESCUE_LOCK = lock_number(0x1E72)  # the advisory locks' namespace
LATE_SECONDS = 5.0  # a request that is due so long makes its partition be watched
STANDS_SECONDS = 10.0  # a partition whose oldest request has not changed for so long stands

_STANDING = in_schema("""
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


def watch(connection: Connection) -> list[int]:
    """Keep watch over the partitions; those that stand, and those whose requests are applied one by one."""
    given = {"late_seconds": LATE_SECONDS, "stands_seconds": STANDS_SECONDS}
    return [int(row[0]) for row in connection.exec_driver_sql(sql("watch_partitions"), given)]


def standing(connection: Connection, *, seconds: float = STANDS_SECONDS) -> Sequence[RowMapping]:
    """The partitions whose oldest request has not changed for so long: for how long, and that request."""
    return connection.exec_driver_sql(_STANDING, {"seconds": seconds}).mappings().all()


def alone(connection: Connection, partition: int) -> bool:
    """Be the only one to rescue a partition until this transaction ends; False where somebody else is."""
    return bool(
        connection.exec_driver_sql("SELECT pg_try_advisory_xact_lock(%s, %s)", (RESCUE_LOCK, partition)).scalar_one()
    )


def begin(connection: Connection, partition: int) -> int | None:
    """Mark that a round begins; how many have begun and not ended, this one too. None: the partition moves again."""
    begun = in_schema("UPDATE interlock.partition_watch SET begun = begun + 1 WHERE partition = %s RETURNING begun")
    found = connection.exec_driver_sql(begun, (partition,)).scalar_one_or_none()
    return None if found is None else int(found)


def end(connection: Connection, partition: int) -> None:
    """Mark that the round came to its end: what is due is nobody's fault."""
    connection.exec_driver_sql(
        in_schema("UPDATE interlock.partition_watch SET begun = 0 WHERE partition = %s"), (partition,)
    )


def following(connection: Connection, partition: int, after: int) -> RowMapping | None:
    """(seq, request_id, workflow_id) of the next request that could be applied, behind `after`."""
    return (
        connection.exec_driver_sql(sql("next_in_partition"), {"partition": partition, "after": after})
        .mappings()
        .first()
    )


def suspect(connection: Connection, partition: int, seq: int) -> int:
    """Mark that a request is going to be applied alone; how often that was begun, this time too."""
    strikes = connection.exec_driver_sql(_SUSPECT, {"partition": partition, "seq": seq}).scalar_one_or_none()
    return 1 if strikes is None else int(strikes)


def clear(connection: Connection, partition: int) -> None:
    """Mark that the last request that was applied alone came to its end."""
    connection.exec_driver_sql(
        in_schema("UPDATE interlock.partition_watch SET suspect = NULL, strikes = 0 WHERE partition = %s"), (partition,)
    )
