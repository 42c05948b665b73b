"""Reads events of history, of one instance or all in commit order. Only `db.core.rounds` appends events."""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from heapq import merge
from operator import itemgetter
from typing import Any, TypedDict, cast
from uuid import UUID

from sqlalchemy import Connection, RowMapping, Table, and_, select
from sqlalchemy.dialects.postgresql import insert

from interlock.db.schema import SCHEMA, in_schema
from interlock.db.statements import queries
from interlock.db.tables.core import definition_transitions, relay_cursors, transitions

sql = queries(__file__)

STREAMED = 500  # events fetched at once
PACED = 10_000  # events looked at for how many a minute there were
LIVE = re.compile(rf"(\b{SCHEMA}\.)workflow_(instances|transitions)\b")  # each has an archived twin

# Events behind a cursor, in commit order. Only those below the oldest transaction still running: nothing can appear
# behind them any more, which a cursor on `position` alone cannot promise.
_BATCH = sql("event_rows") + in_schema("""
 WHERE (t.xid, t.position) > (%(xid)s::text::xid8, %(position)s)
   AND t.xid < pg_snapshot_xmin(pg_current_snapshot())
 ORDER BY t.xid, t.position
 LIMIT %(limit)s
""")
# The events of some instances; of a period, only those within it.
_OF_INSTANCES = sql("event_rows") + in_schema("""
 WHERE t.workflow_id = ANY(%(ids)s::uuid[])
   AND t.created_at >= %(since)s::timestamptz AND t.created_at < %(until)s::timestamptz
 ORDER BY t.xid, t.position
""")
_OF_ARCHIVED = LIVE.sub(r"\1archived_\2", _OF_INSTANCES)
# Of given events (from a journal or a stream), those that history does not have.
_MISSING = in_schema("""
SELECT g.nth
  FROM unnest(%(ids)s::uuid[], %(seqs)s::integer[], %(names)s::text[]) WITH ORDINALITY
           AS g (workflow_id, seq, name, nth)
  LEFT JOIN interlock.every_transition t ON t.workflow_id = g.workflow_id AND t.seq = g.seq
 WHERE t.id IS NULL OR interlock.event_name(t.id) <> g.name
 ORDER BY g.nth
""")


class EventRow(TypedDict):
    """One move of an instance, as history keeps it.

    A row of `workflow_transitions`, and the name that its definition gives the event (EVENT-17).
    """

    id: UUID
    workflow_id: UUID
    seq: int
    workflow_type: str
    definition_version: str
    from_state: str
    to_state: str
    trigger: str
    triggered_by: str | None
    request_id: str | None
    authority: str
    proof: str | None
    login: str
    severity: str
    metadata: dict[str, Any]
    created_at: datetime
    prev_hash: bytes
    hash: bytes
    xid: str
    position: int
    named_event: str | None


_NEWEST = """
SELECT xid::text || '-' || position FROM interlock.workflow_transitions ORDER BY xid DESC, position DESC LIMIT 1
"""


def of_instance(
    connection: Connection,
    instance_id: UUID,
    *,
    after_seq: int = 0,
    limit: int | None = None,
    table: Table = transitions,
) -> list[EventRow]:
    """An instance's events in order, at most `limit` after `after_seq`; an archived one's are in another `table`."""
    moves = definition_transitions
    taken = and_(
        moves.c.type == table.c.workflow_type,
        moves.c.version == table.c.definition_version,
        moves.c.source == table.c.from_state,
        moves.c.trigger == table.c.trigger,
        moves.c.dest == table.c.to_state,
    )
    query = select(table, moves.c.event.label("named_event")).outerjoin(moves, taken)
    query = query.where(table.c.workflow_id == instance_id, table.c.seq > after_seq).order_by(table.c.seq).limit(limit)
    return [cast(EventRow, dict(row)) for row in connection.execute(query).mappings()]


def count(connection: Connection) -> int:
    """The number of events, archived ones included."""
    return int(connection.exec_driver_sql(in_schema("SELECT count(*) FROM interlock.every_transition")).scalar_one())


def cursor(connection: Connection, name: str) -> tuple[int, int]:
    """A relay's cursor, locked for this transaction: (transaction id, position) of the last event relayed."""
    connection.execute(insert(relay_cursors).values(name=name, xid="0", position=0).on_conflict_do_nothing())
    row = connection.exec_driver_sql(
        in_schema("SELECT xid::text::bigint, position FROM interlock.relay_cursors WHERE name = %s FOR UPDATE"), (name,)
    ).one()
    return row[0], row[1]


def batch(
    connection: Connection, after: tuple[int, int], *, limit: int, archived: bool = False
) -> Sequence[RowMapping]:
    """Events after a cursor, in commit order; no event can be committed in front of these any more.

    Args:
        connection: the caller's transaction.
        after: the cursor.
        limit: events at most.
        archived: include archived events, for a cursor far in the past.
    """
    parameters = {"xid": str(after[0]), "position": after[1], "limit": limit}
    live = connection.exec_driver_sql(_BATCH, parameters).mappings().all()
    if not archived:
        return live
    archived_events = connection.exec_driver_sql(LIVE.sub(r"\1archived_\2", _BATCH), parameters).mappings().all()
    # One may have moved in between.
    by_place = {(event["xid"], event["position"]): event for event in (*live, *archived_events)}
    return [by_place[place] for place in sorted(by_place)[:limit]]


def is_archived_after(connection: Connection, after: tuple[int, int]) -> bool:
    """Whether the archive has events after a cursor, so that `batch` must include them."""
    found = connection.exec_driver_sql(
        in_schema(
            "SELECT EXISTS (SELECT FROM interlock.archived_transitions WHERE (xid, position) > (%s::text::xid8, %s))"
        ),
        (str(after[0]), after[1]),
    )
    return bool(found.scalar_one())


def horizon(connection: Connection) -> tuple[int, int]:
    """The place behind which all events stand that are committed from now on, and some that were just before."""
    now = connection.exec_driver_sql("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint")
    return int(now.scalar_one()), 0


def newest_place(connection: Connection) -> str:
    """Where the newest event stands that is kept here; "" if there is none."""
    return str(connection.exec_driver_sql(in_schema(_NEWEST)).scalar() or "")


def pace(connection: Connection) -> list[tuple[int, int]]:
    """Minute (seconds since 1970) -> moves within it, of the last hour and the newest 10,000 events."""
    return [(row.minute, row.moves) for row in connection.exec_driver_sql(sql("pace"), {"most": PACED})]


def of_instances(
    connection: Connection, ids: Sequence[UUID], *, since: datetime | None = None, until: datetime | None = None
) -> Iterator[RowMapping]:
    """The events of some instances in commit order, streamed; live and archived ones.

    Args:
        connection: a transaction that reads one snapshot.
        ids: the instances.
        since, until: only events from the one instant on, and before the other.
    """
    parameters = {"ids": list(ids), "since": since or "-infinity", "until": until or "infinity"}
    options = {"stream_results": True, "max_row_buffer": STREAMED}
    both = (
        connection.exec_driver_sql(each, parameters, execution_options=options).mappings()
        for each in (_OF_INSTANCES, _OF_ARCHIVED)
    )
    return merge(*both, key=itemgetter("xid", "position"))


def behind(connection: Connection, names: Sequence[str]) -> set[str]:
    """Those of the given relays that have events to carry or have never run."""
    rows = connection.exec_driver_sql(
        in_schema(
            "SELECT name FROM unnest(%s::text[]) AS asked (name) LEFT JOIN interlock.relay_cursors c USING (name)"
            " WHERE c.name IS NULL OR EXISTS"
            " (SELECT FROM interlock.workflow_transitions t WHERE (t.xid, t.position) > (c.xid, c.position))"
        ),
        (list(names),),
    )
    return set(rows.scalars())


def lag_seconds(connection: Connection, name: str) -> float:
    """The age of the oldest event that a relay has not carried yet; 0 if there is none."""
    after = read_cursor(connection, name)
    lag = connection.exec_driver_sql(
        in_schema(
            "SELECT extract(epoch FROM now() - created_at) FROM interlock.workflow_transitions"
            " WHERE (xid, position) > (%s::text::xid8, %s) ORDER BY xid, position LIMIT 1"
        ),
        (str(after[0]), after[1]),
    ).scalar_one_or_none()
    return float(lag or 0.0)


def read_cursor(connection: Connection, name: str) -> tuple[int, int]:
    """A relay's cursor, not locked; (0, 0) if the relay never ran."""
    row = connection.exec_driver_sql(
        in_schema("SELECT xid::text::bigint, position FROM interlock.relay_cursors WHERE name = %s"), (name,)
    ).one_or_none()
    return (row[0], row[1]) if row else (0, 0)


def has(connection: Connection, at: tuple[int, int], hashed: str) -> bool:
    """Whether history has an event with this hash (hex) at this place in commit order."""
    found = connection.exec_driver_sql(
        in_schema("SELECT hash FROM interlock.every_transition WHERE xid = %s::text::xid8 AND position = %s"),
        (str(at[0]), at[1]),
    ).scalar_one_or_none()
    return found is not None and bytes(found).hex() == hashed


def advance(connection: Connection, name: str, to: tuple[int, int]) -> None:
    """Move a relay's cursor."""
    connection.exec_driver_sql(
        in_schema("UPDATE interlock.relay_cursors SET xid = %s::text::xid8, position = %s WHERE name = %s"),
        (str(to[0]), to[1], name),
    )


def epochs(connection: Connection) -> Sequence[int]:
    """The first transaction after each restore of a backup, oldest first."""
    return [
        row[0]
        for row in connection.exec_driver_sql(
            in_schema("SELECT first_xid::text::bigint FROM interlock.restores ORDER BY 1")
        )
    ]


def missing(connection: Connection, events: Sequence[tuple[UUID, int, str]]) -> list[int]:
    """The indexes in the list of those events (instance, seq, `evt_…`) that history does not have."""
    columns = {
        "ids": [row[0] for row in events],
        "seqs": [row[1] for row in events],
        "names": [row[2] for row in events],
    }
    return [row[0] - 1 for row in connection.exec_driver_sql(_MISSING, columns)]
