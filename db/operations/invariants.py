"""Rules that hold between entities (DERIVE-8): what breaks them was written by somebody who switched them off."""

from collections.abc import Sequence

from sqlalchemy import Connection, RowMapping

from interlock.db.connection import sql


def broken(connection: Connection, *, limit: int) -> Sequence[RowMapping]:
    """What contradicts itself: `rule`, workflow_type, entity_id, workflow_id and `says`; none where all is well.

    Args:
        connection: any.
        limit: at most so many.
    """
    return connection.exec_driver_sql(sql("invariants"), {"limit": limit}).mappings().all()
