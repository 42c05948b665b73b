"""The orchestration's tables, as SQLAlchemy sees them. Their states are PostgreSQL's own work: see migration 0002."""

from db.typed_tables.patches import patch_ledger_entries, patches
from db.typed_tables.runs import phases, plans, run_counts, run_signals, runs, workstream_counts, workstreams
from db.typed_tables.supervision import circuit_breakers, jobs, supervised_workers
from db.typed_tables.tasks import task_claims, tasks, test_gates
from db.typed_tables.workers import uet_workers, workers

__all__ = [
    "circuit_breakers",
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
