"""History: read events, one instance's or all in commit order. `db.rounds` appends them; nothing changes one."""

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import Connection, RowMapping, select
from sqlalchemy.dialects.postgresql import insert

from db.connect import sql
from db.tables import relay_cursors, transitions


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
    return int(connection.exec_driver_sql("SELECT count(*) FROM every_transition").scalar_one())


def cursor(connection: Connection, name: str) -> tuple[int, int]:
    """Where a relay stands, locked for this transaction: (transaction id, position) of the last event relayed."""
    connection.execute(insert(relay_cursors).values(name=name, xid="0", position=0).on_conflict_do_nothing())
    row = connection.exec_driver_sql(
        "SELECT xid::text::bigint, position FROM relay_cursors WHERE name = %s FOR UPDATE", (name,)
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
    connection.exec_driver_sql("SET LOCAL search_path = archive, public")
    kept = connection.exec_driver_sql(sql("relay_batch"), given).mappings().all()
    connection.exec_driver_sql("SET LOCAL search_path = public")
    by_place = {(event["xid"], event["position"]): event for event in (*live, *kept)}  # one may have moved in between
    return [by_place[place] for place in sorted(by_place)[:limit]]


def lag_seconds(connection: Connection, name: str) -> float:
    """How old the oldest event is that a relay has not carried yet; 0 where there is none."""
    after = cursor_seen(connection, name)
    lag = connection.exec_driver_sql(
        "SELECT extract(epoch FROM now() - created_at) FROM workflow_transitions"
        " WHERE (xid, position) > (%s::text::xid8, %s) ORDER BY xid, position LIMIT 1",
        (str(after[0]), after[1]),
    ).scalar_one_or_none()
    return float(lag or 0.0)


def cursor_seen(connection: Connection, name: str) -> tuple[int, int]:
    """Where a relay stands, without locking; (0, 0) for one that never ran."""
    row = connection.exec_driver_sql(
        "SELECT xid::text::bigint, position FROM relay_cursors WHERE name = %s", (name,)
    ).one_or_none()
    return (row[0], row[1]) if row else (0, 0)


def has(connection: Connection, at: tuple[int, int], hashed: str) -> bool:
    """Whether there is an event at a place in commit order that has this hash (hex)."""
    found = connection.exec_driver_sql(
        "SELECT hash FROM every_transition WHERE xid = %s::text::xid8 AND position = %s", (str(at[0]), at[1])
    ).scalar_one_or_none()
    return found is not None and bytes(found).hex() == hashed


def advance(connection: Connection, name: str, to: tuple[int, int]) -> None:
    """Remember how far a relay has come."""
    connection.exec_driver_sql(
        "UPDATE relay_cursors SET xid = %s::text::xid8, position = %s WHERE name = %s",
        (str(to[0]), to[1], name),
    )


def epochs(connection: Connection) -> Sequence[int]:
    """The first transaction after each restore of a backup, oldest first."""
    return [row[0] for row in connection.exec_driver_sql("SELECT first_xid::text::bigint FROM restores ORDER BY 1")]


def missing(connection: Connection, told: Sequence[tuple[UUID, int, str]]) -> list[int]:
    """Which of these events (instance, seq, `evt_…`) history does not have, by their places in the list."""
    columns = {"ids": [row[0] for row in told], "seqs": [row[1] for row in told], "names": [row[2] for row in told]}
    return [row[0] - 1 for row in connection.exec_driver_sql(sql("missing_events"), columns)]
