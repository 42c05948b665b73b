"""Alembic's environment: the connection comes from `db.migrate`, never from a file."""

from alembic import context

from interlock.db.schema import SCHEMA
from interlock.db.tables.core import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table_schema=SCHEMA,
    transaction_per_migration=True,
)
with context.begin_transaction():
    context.run_migrations()
