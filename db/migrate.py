"""Migrate a database to the newest schema: one process at a time, with short lock timeouts.

Alembic is imported only where something is due: to import it takes longer than to find that nothing is.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, Engine, text

from interlock.db import roles
from interlock.db.audit import schema_state
from interlock.db.schema import SCHEMA, VARIABLE, in_schema, lock_number
from interlock.workflows.errors import InterlockError, Refused

MIGRATIONS = Path(__file__).parent / "migrations"
MIGRATION_LOCK = lock_number(0x1E71_0C4B)
# Whether Alembic has been here. `to_regclass` would ask for a right to a schema that is somebody else's.
RECORDED = """
SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                WHERE n.nspname = :schema AND c.relname = 'alembic_version')"""
REVISION = in_schema("SELECT version_num FROM interlock.alembic_version")
# The number of tables and views in each schema, without those of extensions.
HELD = """
SELECT n.nspname, count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
   AND NOT EXISTS (SELECT FROM pg_depend d
                    WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
 GROUP BY 1 ORDER BY 1"""


class SchemaTaken(Refused):
    """The schema holds tables that are not Interlock's. Choose another with INTERLOCK_SCHEMA; nothing was changed."""


class SchemaUnknown(InterlockError):
    """The schema is at a revision that this Interlock does not know. Use the Interlock that made it, or a newer one."""


@dataclass(frozen=True, slots=True)
class MigrationStatus:
    """The migration status of a database.

    Args:
        database: its name.
        current: its schema's revision; None if there is none yet.
        newest: the newest revision.
        others: the database's other schemas that are not empty -> number of tables and views.
    """

    database: str
    current: str | None
    newest: str
    others: Mapping[str, int]

    @property
    def due(self) -> bool:
        """Whether there is anything to migrate."""
        return self.current != self.newest


def status(connection: Connection) -> MigrationStatus:
    """Read the migration status of a database; nothing is changed.

    Raises:
        SchemaTaken: the schema has tables that are not Interlock's.
        SchemaUnknown: it was made by another version.
    """
    database: str = connection.execute(text("SELECT current_database()")).scalar_one()
    tables_by_schema = {name: count for name, count in connection.execute(text(HELD))}
    current, newest = revision(connection)
    if current is None and tables_by_schema.get(SCHEMA):
        raise SchemaTaken(
            f"schema {SCHEMA} of database {database} holds tables that are not Interlock's. Set {VARIABLE} to the "
            "name of another schema, which is made if it is not there"
        )
    if current is not None and current not in revisions():
        raise SchemaUnknown(
            f"schema {SCHEMA} of database {database} is at revision {current}, which this Interlock does not know (it "
            f"knows {newest}): use the Interlock that made it, or a newer one"
        )
    return MigrationStatus(
        database, current, newest, {name: count for name, count in tables_by_schema.items() if name != SCHEMA}
    )


def upgrade(engine: Engine, *, record: bool = False) -> list[str]:
    """Apply the missing migrations and record the schema that they leave. Safe to run from several machines at once.

    Args:
        engine: of the schema's owner.
        record: also where nothing is missing, create roles, grant rights and record the schema, as somebody changed it.

    Returns:
        The objects that somebody had changed before: they are recorded as they are now.

    Raises:
        SchemaTaken, SchemaUnknown: see `status`; nothing was changed.
        RolesMissing: a DBA must prepare the database; nothing was changed.
        sqlalchemy.exc.OperationalError: no connection, or a lock was not free within ten seconds; nothing was changed.
    """
    with engine.connect() as connection, _alone(connection):
        before = status(connection)
        if not (before.due or record):
            return []
        altered = changed(connection, before)
        roles.become_owner(connection)
        exists = text("SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = :name)")
        if not connection.execute(exists, {"name": SCHEMA}).scalar_one():  # with IF NOT EXISTS, the right to is asked
            connection.execute(text(f"CREATE SCHEMA {SCHEMA}"))
        if before.due:
            _apply(connection)
        roles.grant(connection)
        schema_state.record(connection)
        connection.commit()
    return altered


def changed(connection: Connection, found: MigrationStatus) -> list[str]:
    """The objects of the schema that are not as recorded; none before the first migration."""
    return [] if found.current is None else [each for each, _ in schema_state.changed(connection)]


def revision(connection: Connection) -> tuple[str | None, str]:
    """(the database's schema revision, the newest revision)."""
    there = connection.execute(text(RECORDED), {"schema": SCHEMA}).scalar_one()
    return connection.exec_driver_sql(REVISION).scalar_one_or_none() if there else None, revisions()[0]


def revisions() -> list[str]:
    """The revisions that this installation knows, the newest first. Each is the first word of its file's name."""
    return sorted((each.name.partition("_")[0] for each in (MIGRATIONS / "versions").glob("[0-9]*.py")), reverse=True)


@contextmanager
def _alone(connection: Connection) -> Iterator[None]:
    """Hold the migration lock while the block runs, with an empty search path."""
    for setting in ("lock_timeout = '10s'", "statement_timeout = '10min'", "search_path = ''"):
        connection.execute(text(f"SET {setting}"))
    connection.execute(text("SELECT pg_advisory_lock(:lock)"), {"lock": MIGRATION_LOCK})
    connection.commit()
    try:
        yield
    finally:
        connection.rollback()
        connection.execute(text("RESET ROLE"))
        connection.execute(text("SELECT pg_advisory_unlock(:lock)"), {"lock": MIGRATION_LOCK})
        connection.execute(text("RESET ALL"))
        connection.commit()


def _apply(connection: Connection) -> None:
    from alembic import command  # noqa: PLC0415 - see above
    from alembic.config import Config  # noqa: PLC0415 - likewise

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
