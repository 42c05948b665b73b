"""The durable core: definitions, instances, history, requests, effects, and what PostgreSQL refuses by itself."""

from pathlib import Path

from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create everything. There is no way down: history is kept for ever."""
    script = Path(__file__).parents[1] / "sql" / "0001_core.sql"
    op.get_bind().exec_driver_sql(script.read_text(), execution_options={"no_parameters": True})
