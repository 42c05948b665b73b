"""The orchestration's tables for SQLAlchemy. PostgreSQL's triggers write their states (`db/migrations/sql`)."""

from interlock.db.tables.commands import commands
from interlock.db.tables.patches import patch_ledger_entries, patches
from interlock.db.tables.runs import phases, plans, run_counts, run_signals, runs, workstream_counts, workstreams
from interlock.db.tables.supervision import circuit_breakers, jobs, supervised_workers
from interlock.db.tables.tasks import task_claims, tasks, test_gates
from interlock.db.tables.workers import uet_workers, workers

__all__ = [
    "circuit_breakers",
    "commands",
    "jobs",
    "patch_ledger_entries",
    "patches",
    "phases",
    "plans",
    "run_counts",
    "run_signals",
    "runs",
    "supervised_workers",
    "task_claims",
    "tasks",
    "test_gates",
    "uet_workers",
    "workers",
    "workstream_counts",
    "workstreams",
]
