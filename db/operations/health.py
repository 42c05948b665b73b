"""What PostgreSQL says of itself and of what waits in it."""

from typing import Any

from sqlalchemy import Connection, RowMapping, text

from interlock.db.connection import sql


def server(connection: Connection) -> RowMapping:
    """Version, address and whether commits are durable."""
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
    """Who is logged in: `name`, whether it is a `superuser`, and whether it is the one the server was made with."""
    question = (
        "SELECT rolname AS name, rolsuper AS superuser, oid = 10 AS first FROM pg_roles WHERE rolname = current_user"
    )
    return connection.execute(text(question)).mappings().one()


def backlog(connection: Connection) -> dict[str, Any]:
    """Counts and ages (seconds) of what waits or is dead."""
    row = connection.exec_driver_sql(sql("backlog")).mappings().one()
    return {
        name: float(value) if name.endswith("_seconds") and value is not None else value for name, value in row.items()
    }
