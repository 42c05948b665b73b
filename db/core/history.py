"""History: read events, one instance's or all in commit order. `db.core.rounds` appends them; nothing changes one."""

import re
from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import Connection, RowMapping, select
from sqlalchemy.dialects.postgresql import insert

from interlock.db.connection import sql
from interlock.db.schema import SCHEMA, in_schema
from interlock.db.tables.core import relay_cursors, transitions

LIVE = re.compile(rf"(\b{SCHEMA}\.)workflow_(instances|transitions)\b")  # each has an archived twin


def of_instance(connection: Connection, instance_id: UUID, *, after_seq: int = 0) -> Sequence[RowMapping]:
    """An instance's events in order, those after `after_seq`."""
    query = (
        select(transitions)
        .where(transitions.c.workflow_id == instance_id, transitions.c.seq > after_seq)
        .order_by(transitions.c.seq)
    )
    return connection.execute(query).mappings().all()


def count(connection: Connection) -> int:
    """How many events there are, the archive's too."""
    return int(connection.exec_driver_sql(in_schema("SELECT count(*) FROM interlock.every_transition")).scalar_one())


def cursor(connection: Connection, name: str) -> tuple[int, int]:
    """Where a relay stands, locked for this transaction: (transaction id, position) of the last event relayed."""
    connection.execute(insert(relay_cursors).values(name=name, xid="0", position=0).on_conflict_do_nothing())
    row = connection.exec_driver_sql(
        in_schema("SELECT xid::text::bigint, position FROM interlock.relay_cursors WHERE name = %s FOR UPDATE"), (name,)
    ).one()
    return row[0], row[1]


def batch(
    connection: Connection, after: tuple[int, int], *, limit: int, archived: bool = False
) -> Sequence[RowMapping]:
    """Events behind a cursor in commit order, none of which can be overtaken any more.

    Args:
        connection: the caller's transaction.
        after: the cursor.
        limit: events at most.
        archived: those in the archive, too: for whoever begins long ago.
    """
    given = {"xid": str(after[0]), "position": after[1], "limit": limit}
    live = connection.exec_driver_sql(sql("relay_batch"), given).mappings().all()
    if not archived:
        return live
    kept = connection.exec_driver_sql(LIVE.sub(r"\1archived_\2", sql("relay_batch")), given).mappings().all()
    by_place = {(event["xid"], event["position"]): event for event in (*live, *kept)}  # one may have moved in between
    return [by_place[place] for place in sorted(by_place)[:limit]]


def behind(connection: Connection, names: Sequence[str]) -> set[str]:
    """Which of these relays have events to carry, or have never run."""
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
    """How old the oldest event is that a relay has not carried yet; 0 where there is none."""
    after = cursor_seen(connection, name)
    lag = connection.exec_driver_sql(
        in_schema(
            "SELECT extract(epoch FROM now() - created_at) FROM interlock.workflow_transitions"
            " WHERE (xid, position) > (%s::text::xid8, %s) ORDER BY xid, position LIMIT 1"
        ),
        (str(after[0]), after[1]),
    ).scalar_one_or_none()
    return float(lag or 0.0)


def cursor_seen(connection: Connection, name: str) -> tuple[int, int]:
    """Where a relay stands, without locking; (0, 0) for one that never ran."""
    row = connection.exec_driver_sql(
        in_schema("SELECT xid::text::bigint, position FROM interlock.relay_cursors WHERE name = %s"), (name,)
    ).one_or_none()
    return (row[0], row[1]) if row else (0, 0)


def has(connection: Connection, at: tuple[int, int], hashed: str) -> bool:
    """Whether there is an event at a place in commit order that has this hash (hex)."""
    found = connection.exec_driver_sql(
        in_schema("SELECT hash FROM interlock.every_transition WHERE xid = %s::text::xid8 AND position = %s"),
        (str(at[0]), at[1]),
    ).scalar_one_or_none()
    return found is not None and bytes(found).hex() == hashed


def advance(connection: Connection, name: str, to: tuple[int, int]) -> None:
    """Remember how far a relay has come."""
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


def missing(connection: Connection, told: Sequence[tuple[UUID, int, str]]) -> list[int]:
    """Which of these events (instance, seq, `evt_…`) history does not have, by their places in the list."""
    columns = {"ids": [row[0] for row in told], "seqs": [row[1] for row in told], "names": [row[2] for row in told]}
    return [row[0] - 1 for row in connection.exec_driver_sql(sql("missing_events"), columns)]
