"""History in commit order, as the journal and exports have it: only what identifies each event."""

from collections.abc import Iterator
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import Connection

from interlock.db.audit.snapshot import Snapshot
from interlock.db.schema import in_schema

Place = tuple[int, int]  # transaction id, position

_EVENTS = in_schema("""
SELECT t.xid::text::bigint, t.position, t.workflow_id, t.seq, t.hash
  FROM interlock.every_transition t
 WHERE (t.xid, t.position) > (%s::text::xid8, %s::bigint)
 ORDER BY t.xid, t.position
""")
_COUNT = in_schema("""
SELECT count(*) FROM interlock.every_transition t
 WHERE (t.xid, t.position) > (%s::text::xid8, %s) AND (t.xid, t.position) <= (%s::text::xid8, %s)
""")


class Placed(NamedTuple):
    """An event's place in commit order, and what identifies it."""

    place: Place
    workflow_id: UUID
    seq: int
    hash: bytes


def events(snapshot: Snapshot, after: Place) -> Iterator[Placed]:
    """The events after a place, archived ones included, streamed."""
    rows = snapshot.rows(_EVENTS, (str(after[0]), after[1]))
    return (Placed((xid, position), *rest) for xid, position, *rest in rows)


def count_between(connection: Connection, after: Place, upto: Place) -> int:
    """How many events history has after one place, up to and with another."""
    parameters = (str(after[0]), after[1], str(upto[0]), upto[1])
    return int(connection.exec_driver_sql(_COUNT, parameters).scalar_one())
