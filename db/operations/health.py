"""The health of PostgreSQL, and the backlog of requests and effects."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, RowMapping, text

from interlock.db.core.requests import PARTITIONS
from interlock.db.core.rounds import PARTITION_LOCK
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


def login(connection: Connection, parts: Sequence[str]) -> RowMapping:
    """The login, with what it may do beyond its part, by PostgreSQL's own answers.

    Args:
        connection: a connection of the login.
        parts: the schema's roles; the first that it is a member of is its part.

    Returns:
        `name`; `part`, None if it has none; `superuser`: whether it is one, or can become one; `owner`: whether it can
        become the schema's owner, who may do everything to it; `attributes`: those of its own, or of a role that it can
        become, like `REPLICATION`; `predefined`: PostgreSQL's own roles that it is a member of; `grants`: the schema's
        roles that it may grant to others. Beyond its part: `tables`, each with privileges; `sequences`; `functions`;
        `owns`; `creates`: whether it may create objects in the schema; `replica`: whether it may set
        `session_replication_role`.
    """
    return connection.exec_driver_sql(sql("login"), {"parts": list(parts)}).mappings().one()


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
