"""Deprecations, and moves of live instances to another version."""

from pathlib import Path

from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Create everything. There is no way down: history is kept for ever."""
    script = Path(__file__).parents[1] / "sql" / "0006_changes.sql"
    op.get_bind().exec_driver_sql(script.read_text(), execution_options={"no_parameters": True})
