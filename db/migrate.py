"""Bring a database to the newest schema: one migrator at a time, never waiting long for a lock."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text

MIGRATIONS = Path(__file__).parent / "migrations"
MIGRATION_LOCK = 0x1E71_0C4B  # any constant that nobody else of this database uses


def upgrade(engine: Engine) -> None:
    """Apply the migrations that are missing. Safe to run from several machines at once.

    Raises:
        sqlalchemy.exc.OperationalError: no connection, or a lock not had within ten seconds; nothing is half done.
    """
    with engine.connect() as connection:
        connection.execute(text("SET lock_timeout = '10s'"))
        connection.execute(text("SET statement_timeout = '10min'"))
        connection.execute(text("SELECT pg_advisory_lock(:lock)"), {"lock": MIGRATION_LOCK})
        connection.commit()
        try:
            command.upgrade(_config(connection), "head")
            connection.commit()
        finally:
            connection.rollback()
            connection.execute(text("SELECT pg_advisory_unlock(:lock)"), {"lock": MIGRATION_LOCK})
            connection.execute(text("RESET ALL"))
            connection.commit()


def revision(connection: Connection) -> tuple[str | None, str | None]:
    """(the schema revision the database has, the newest one there is)."""
    newest = ScriptDirectory.from_config(_config(connection)).get_current_head()
    return MigrationContext.configure(connection).get_current_revision(), newest


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config
