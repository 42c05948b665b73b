"""The orchestration: typed tables as projections of history, claims, what the scheduler counts, the seeds' views."""

from pathlib import Path

from alembic import op

revision = "0002"
down_revision = "0001"

PARTS = (  # by kind; each refers to those before it
    "shared",
    "run",
    "workstream",
    "worker",
    "task",
    "patch",
    "gate",
    "breaker",
    "supervision",
    "projections",
    "views",
)


def upgrade() -> None:
    """Create everything. There is no way down: history is kept for ever."""
    scripts = Path(__file__).parents[1] / "sql" / "0002_orchestration"
    for part in PARTS:
        script = scripts / f"{part}.sql"
        op.get_bind().exec_driver_sql(script.read_text(), execution_options={"no_parameters": True})
