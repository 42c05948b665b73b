"""The health of PostgreSQL, and the backlog of requests and effects."""

from typing import Any

from sqlalchemy import Connection, RowMapping, text

from interlock.db.core.requests import PARTITIONS
from interlock.db.core.rounds import PARTITION_LOCK
from interlock.db.schema import ROLES
from interlock.db.statements import queries

sql = queries(__file__)


def server(connection: Connection) -> RowMapping:
    """Version, and whether commits are durable."""
    return (
        connection.execute(
            text(
                "SELECT current_setting('server_version_num')::int AS number,"
                " current_setting('server_version') AS version, current_setting('fsync') AS fsync,"
                " current_setting('synchronous_commit') AS synchronous_commit"
            )
        )
        .mappings()
        .one()
    )


def login(connection: Connection) -> RowMapping:
    """The login.

    Returns:
        `name`; `superuser`; `creates_roles`; `member_of`: those of the schema's roles that it is a member of; `writes`:
        the tables that it may write by grants of its own, or of everybody's.
    """
    return connection.exec_driver_sql(sql("login"), {"roles": list(ROLES)}).mappings().one()


def lock_holders(connection: Connection) -> dict[int, RowMapping]:
    """The sessions that hold partitions' locks.

    Returns:
        by process id: `login`; `application`; `engine`: whether the login is one of Interlock's; `partitions`.
    """
    parameters = {"namespace": PARTITION_LOCK, "partitions": PARTITIONS}
    return {row["pid"]: row for row in connection.exec_driver_sql(sql("lock_holders"), parameters).mappings()}


def backlog(connection: Connection) -> dict[str, Any]:
    """Counts and ages (seconds) of waiting and dead requests and effects."""
    row = connection.exec_driver_sql(sql("backlog")).mappings().one()
    return {
        name: float(value) if name.endswith("_seconds") and value is not None else value for name, value in row.items()
    }
