"""Counters that the relay keeps."""

from pathlib import Path

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Create everything. There is no way down: history is kept for ever."""
    script = Path(__file__).parents[1] / "sql" / "0005_metrics.sql"
    op.get_bind().exec_driver_sql(script.read_text(), execution_options={"no_parameters": True})
