"""Creates the whole schema: tables, constraints, functions, database triggers and views, from `db/migrations/sql/`."""

from pathlib import Path

from alembic import op

from interlock.db.schema import in_schema

revision = "0001"
down_revision = None

ORCHESTRATION = ("shared", "run", "workstream", "worker", "task", "patch", "gate", "breaker", "supervision", "command")
SCRIPTS = (  # each refers to those before it
    "rules",
    "core",
    *(f"orchestration/{part}" for part in ORCHESTRATION),
    "orchestration/projections",
    "governance",
    "tokens",
    "narrowings",
    "schedules",
    "operations",
    "limits",
    "handovers",
    "budgets",
    "worker_secrets",
    "authority",
    "archive",
    "subscriptions",
    "approvals",
    "audit",
    "links",
    "history",
    "protections",
    "doors",
    "refusals",
)


def upgrade() -> None:
    """Create everything. There is no downgrade, because it would drop history."""
    scripts = Path(__file__).parents[1] / "sql"
    for name in SCRIPTS:
        script = in_schema((scripts / f"{name}.sql").read_text())
        op.get_bind().exec_driver_sql(script, execution_options={"no_parameters": True})
