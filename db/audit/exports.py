"""The record of audit exports, and the lock that allows one export at a time."""

from sqlalchemy import Connection, RowMapping, text

from interlock.db.schema import in_schema, lock_number

EXPORT_LOCK = lock_number(0x1E71_0C4D)


def newest(connection: Connection) -> RowMapping | None:
    """The newest export: number, made_at, events, manifest; `age_seconds` by the database's clock."""
    query = in_schema(
        "SELECT *, extract(epoch FROM now() - made_at)::float8 AS age_seconds FROM interlock.audit_exports"
    )
    return connection.execute(text(query + " ORDER BY number DESC LIMIT 1")).mappings().one_or_none()


def named(export: RowMapping | None) -> dict[str, int | str] | None:
    """How an anchor's record names an export, and with it all before: number, and SHA-256 (hex) of its manifest."""
    return {"number": export["number"], "manifest": export["manifest"]} if export else None


def add(connection: Connection, number: int, made_at: str, events: int, manifest: str) -> None:
    """Record an export with its manifest's SHA-256 (hex), which the next manifest names."""
    query = in_schema(
        "INSERT INTO interlock.audit_exports VALUES (:number, CAST(:made_at AS timestamptz), :events, :manifest)"
    )
    parameters = {"number": number, "made_at": made_at, "events": events, "manifest": manifest}
    connection.execute(text(query), parameters)


def manifests(connection: Connection) -> dict[int, str]:
    """Export's number -> SHA-256 (hex) of its manifest."""
    return {
        row[0]: row[1]
        for row in connection.execute(text(in_schema("SELECT number, manifest FROM interlock.audit_exports")))
    }
