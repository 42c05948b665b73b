"""Alembic's environment: the connection comes from `db.migrate`, never from a file."""

from alembic import context

from db.tables import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, transaction_per_migration=True)
with context.begin_transaction():
    context.run_migrations()
