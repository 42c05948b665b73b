"""The health of PostgreSQL, and the backlog of requests and effects."""

from typing import Any

from sqlalchemy import Connection, RowMapping, text

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
    """The current role: `name`, whether it is a `superuser`, and whether it is the server's `first` role."""
    question = (
        "SELECT rolname AS name, rolsuper AS superuser, oid = 10 AS first FROM pg_roles WHERE rolname = current_user"
    )
    return connection.execute(text(question)).mappings().one()


def backlog(connection: Connection) -> dict[str, Any]:
    """Counts and ages (seconds) of waiting and dead requests and effects."""
    row = connection.exec_driver_sql(sql("backlog")).mappings().one()
    return {
        name: float(value) if name.endswith("_seconds") and value is not None else value for name, value in row.items()
    }
