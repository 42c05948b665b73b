"""Alembic's environment: the connection comes from `db.migrate`, never from a file."""

from alembic import context

from interlock.db.schema import SCHEMA

context.configure(
    connection=context.config.attributes["connection"],
    version_table_schema=SCHEMA,
    transaction_per_migration=True,
)
with context.begin_transaction():
    context.run_migrations()
