"""Rules between entities (DERIVE-8). A violation means that somebody switched the protecting triggers off."""

from collections.abc import Sequence

from sqlalchemy import Connection, RowMapping

from interlock.db.statements import queries

sql = queries(__file__)


def broken(connection: Connection, *, limit: int) -> Sequence[RowMapping]:
    """Find violations: `rule`, workflow_type, entity_id, workflow_id, and `message`.

    Args:
        connection: any.
        limit: the most violations to return.
    """
    return connection.exec_driver_sql(sql("invariants"), {"limit": limit}).mappings().all()
