"""History: read events, one instance's or all in commit order. `db.rounds` appends them; nothing changes one."""

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import Connection, RowMapping, func, select
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
    """How many events there are."""
    return connection.execute(select(func.count()).select_from(transitions)).scalar_one()


def cursor(connection: Connection, name: str) -> tuple[int, int]:
    """Where a relay stands, locked for this transaction: (transaction id, position) of the last event relayed."""
    connection.execute(insert(relay_cursors).values(name=name, xid="0", position=0).on_conflict_do_nothing())
    row = connection.exec_driver_sql(
        "SELECT xid::text::bigint, position FROM relay_cursors WHERE name = %s FOR UPDATE", (name,)
    ).one()
    return row[0], row[1]


def batch(connection: Connection, after: tuple[int, int], *, limit: int) -> Sequence[RowMapping]:
    """Events behind a cursor in commit order, none of which can be overtaken any more."""
    given = {"xid": str(after[0]), "position": after[1], "limit": limit}
    return connection.exec_driver_sql(sql("relay_batch"), given).mappings().all()


def advance(connection: Connection, name: str, to: tuple[int, int]) -> None:
    """Remember how far a relay has come."""
    connection.exec_driver_sql(
        "UPDATE relay_cursors SET xid = %s::text::xid8, position = %s WHERE name = %s",
        (str(to[0]), to[1], name),
    )
