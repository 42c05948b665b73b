"""Which table each shipped machine is held to, and what its moves and events must say beside."""

from tests.unit.move_table import Table
from tests.unit.move_tables_orchestration import (
    CIRCUIT_BREAKER,
    PATCH_LEDGER,
    PATCH_LEDGER_1_1,
    PHASE,
    REGRESSION,
    RUN,
    TASK,
    TASK_1_1,
    TEST_GATE,
    TEST_GATE_1_1,
    UET_WORKER,
    WORKER,
    WORKER_1_1,
    WORKSTREAM,
    WORKSTREAM_1_1,
)
from tests.unit.move_tables_others import (
    API_TOKEN,
    DEPRECATION,
    HANDOVER,
    JOB,
    LIMIT,
    NARROWING,
    OLDER_TASK,
    OLDER_WORKSTREAM,
    OLDEST_WORKSTREAM,
    OPERATOR_GRANT,
    REFUSAL_LOG,
    SCHEDULE,
    STEP,
    SUPERVISED_WORKER,
)

TABLES: dict[tuple[str, str], Table] = {
    ("phase", "1.0.0"): PHASE,
    ("run", "1.0.0"): RUN,
    ("run", "1.1.0"): RUN,
    ("workstream", "0.1.0"): OLDEST_WORKSTREAM,
    ("workstream", "0.2.0"): OLDER_WORKSTREAM,
    ("workstream", "1.0.0"): WORKSTREAM,
    ("workstream", "1.1.0"): WORKSTREAM_1_1,
    ("task", "0.2.0"): OLDER_TASK,
    ("task", "1.0.0"): TASK,
    ("task", "1.1.0"): TASK_1_1,
    ("step", "0.1.0"): STEP,
    ("worker", "1.0.0"): WORKER,
    ("worker", "1.1.0"): WORKER_1_1,
    ("uet_worker", "1.0.0"): UET_WORKER,
    ("patch_ledger", "1.0.0"): PATCH_LEDGER,
    ("patch_ledger", "1.1.0"): PATCH_LEDGER_1_1,
    ("test_gate", "1.0.0"): TEST_GATE,
    ("test_gate", "1.1.0"): TEST_GATE_1_1,
    ("circuit_breaker", "1.0.0"): CIRCUIT_BREAKER,
    ("regression", "1.0.0"): REGRESSION,
    ("supervised_worker", "1.0.0"): SUPERVISED_WORKER,
    ("job", "1.0.0"): JOB,
    ("operator_grant", "1.0.0"): OPERATOR_GRANT,
    ("api_token", "1.0.0"): API_TOKEN,
    ("deprecation", "1.0.0"): DEPRECATION,
    ("refusal_log", "1.0.0"): REFUSAL_LOG,
    ("narrowing", "1.0.0"): NARROWING,
    ("limit", "1.0.0"): LIMIT,
    ("handover", "1.0.0"): HANDOVER,
    ("schedule", "1.0.0"): SCHEDULE,
}

# Moves along a pair of the table by another trigger than the one that gives the pair its severity.
OTHERWISE_SEVERE = {
    ("workstream", "patch_set_aside", "executing"): "error",  # WORKSTREAM-9; nothing critical failed
    ("workstream", "tasks_lost", "executing"): "error",
    ("worker", "max_timeout_exceeded", "idle"): "error",
    ("worker", "max_timeout_exceeded", "suspended"): "error",
    ("uet_worker", "shutdown_requested", "SPAWNING"): "info",
    ("uet_worker", "worker_crashed", "IDLE"): "error",
    ("uet_worker", "worker_crashed", "DRAINING"): "error",
    ("patch_ledger", "roll_back", "committed"): "critical",
    ("job", "timeout_exceeded", "RUNNING"): "error",
    ("schedule", "end", "active"): "info",  # by whoever made it; not by others
    ("schedule", "end", "paused"): "info",
}

# EVENT-4.
REQUIRED_METADATA = {
    "task": {"worker_id", "duration_seconds", "retry_count", "exit_code", "timeout_occurred"},
    "workstream": {"total_tasks", "completed_tasks", "failed_tasks", "duration_seconds", "critical_failure"},
    "patch_ledger": {"patch_id", "validation_results", "commit_sha", "quarantine_reason"},
    "operator_grant": {"terms"},
    "api_token": {"terms"},
    "deprecation": {"terms"},
    "narrowing": {"terms"},
    "limit": {"terms"},
    "handover": {"terms"},
    "worker": {"heartbeat_status", "current_load", "last_heartbeat_age_seconds", "crash_detected"},
    "uet_worker": {"heartbeat_status", "current_load", "last_heartbeat_age_seconds", "crash_detected"},
}
