"""What PostgreSQL says of itself, of its protections and of what waits in it."""

from typing import Any

from sqlalchemy import Connection, RowMapping, text

from db.connect import sql

PROTECTED = (
    "workflow_instances",
    "workflow_transitions",
    "workflow_definitions",
    "definition_states",
    "definition_transitions",
    "anchors",
    "anchor_heads",
    "audit_exports",
    "deprecations",
    "definition_removals",
)


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


def unprotected(connection: Connection) -> list[str]:
    """The protecting triggers that somebody has switched off or weakened (should be none)."""
    rows = connection.execute(
        text(
            "SELECT c.relname || '.' || t.tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid"
            " WHERE c.relname = ANY(:tables) AND NOT t.tgisinternal AND t.tgenabled <> 'A'"
        ),
        {"tables": list(PROTECTED)},
    )
    return [row[0] for row in rows]


def backlog(connection: Connection) -> dict[str, Any]:
    """Counts and ages (seconds) of what waits or is dead."""
    row = connection.exec_driver_sql(sql("backlog")).mappings().one()
    return {
        name: float(value) if name.endswith("_seconds") and value is not None else value for name, value in row.items()
    }
