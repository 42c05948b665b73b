"""What the CHECKs of the typed tables forbid (docs/spec/constraints.md)."""

Check = tuple[str, str, str, str, str]


def needs(source: str, type_: str, row: str, column: str, value: str) -> Check:
    """A row like this has a value in that column."""
    return (source, type_, row, f"{column} IS NOT NULL", f"{row}, {column} = {value}")


def not_before(type_: str, column: str, other: str, row: str = "") -> Check:
    """One instant of a row is not before another."""
    at = f"{row}{column} = {other}"
    return ("CHECK-8", type_, f"{at} - interval '1 s'", f"{column} >= {other}", at)


VALID = ", ".join(f"validation_{each}_passed = true" for each in ("format", "scope", "constraints", "tests"))
# (source, type, what is wrong, words of the CHECK that must refuse it, the nearest thing that is right)
CHECKS = [
    needs("CHECK-2, CHECK-3", "run", "state = 'running'", "started_at", "now()"),
    ("CHECK-2, CHECK-3", "run", "started_at = now()", "started_at IS NULL", "state = 'running', started_at = now()"),
    needs("CHECK-2, CHECK-3", "run", "state = 'succeeded', started_at = now()", "completed_at", "now()"),
    (
        "CHECK-2, CHECK-3",
        "run",
        "state = 'failed', completed_at = now()",
        "started_at IS NOT NULL",
        "state = 'failed', started_at = now(), completed_at = now()",
    ),
    ("CHECK-3", "run", "state = 'canceled'", "completed_at", "state = 'canceled', completed_at = now()"),
    ("CHECK-2, CHECK-3", "run", "completed_at = now()", "completed_at IS NOT NULL", "metadata = '{}'"),
    not_before("run", "started_at", "created_at", "state = 'running', "),
    (
        "CHECK-3",
        "run",
        "state = 'failed', started_at = now(), completed_at = created_at",
        "completed_at >= started_at",
        "state = 'failed', started_at = now(), completed_at = now()",
    ),
    (
        "CHECK-3",
        "run",
        "state = 'canceled', completed_at = created_at - interval '1 s'",
        "completed_at >= created_at",
        "state = 'canceled', completed_at = created_at",
    ),
    *(
        needs("CHECK-2", "workstream", f"state = '{end}'", "completed_at", "now()")
        for end in ("completed", "failed", "cancelled", "skipped")
    ),
    (
        "CHECK-2",
        "workstream",
        "state = 'executing', completed_at = now()",
        "completed_at IS NOT NULL",
        "state = 'executing'",
    ),
    not_before("workstream", "updated_at", "created_at"),
    not_before("workstream", "completed_at", "updated_at", "state = 'completed', "),
    *(
        ("CHECK-4", "task", f"state = '{state}', worker_id = <worker>", "worker_id", f"state = '{state}'")
        for state in ("pending", "queued", "validating", "retrying", "blocked")
    ),
    needs("CHECK-4", "task", "state = 'running'", "worker_id", "<worker>"),
    *(
        (
            "CHECK-2",
            "task",
            f"state = '{end}', completed_at = NULL",
            "completed_at",
            f"state = '{end}', completed_at = now()",
        )
        for end in ("completed", "failed", "cancelled")
    ),
    ("CHECK-2", "task", "completed_at = now()", "completed_at IS NOT NULL", "last_error = 'e'"),
    ("CHECK-5", "task", "retry_count = 4", "retry_count BETWEEN 0 AND NEW.max_retries", "retry_count = 3"),
    ("CHECK-5", "task", "retry_count = -1", "retry_count BETWEEN 0 AND NEW.max_retries", "retry_count = 0"),
    (
        "CHECK-8",
        "task",
        "started_at = created_at - interval '1 s'",
        "started_at < NEW.created_at",
        "started_at = created_at",
    ),
    (
        "CHECK-8",
        "task",
        "state = 'failed', started_at = now(), completed_at = created_at",
        "completed_at < GREATEST(NEW.created_at, NEW.started_at)",
        "state = 'failed', started_at = now(), completed_at = now()",
    ),
    (
        "CHECK-8",
        "task",
        "state = 'cancelled', completed_at = created_at - interval '1 s'",
        "completed_at < GREATEST(NEW.created_at, NEW.started_at)",
        "state = 'cancelled', completed_at = created_at",
    ),
    (
        "CHECK-7",
        "task",
        "blocked_by = ARRAY[<task>]::uuid[]",
        "blocked_by <> ",
        "state = 'blocked', blocked_by = ARRAY[<task>]::uuid[]",
    ),
    ("CHECK-5", "task", "timeout_sec = 0", "timeout_sec <= 0", "timeout_sec = 1"),
    needs("CHECK-10", "worker", "state = 'shutdown'", "shutdown_at", "now()"),
    ("CHECK-10", "worker", "state = 'idle', shutdown_at = now()", "shutdown_at", "state = 'idle'"),
    ("CHECK-10", "worker", "current_load = 2", "current_load <= max_concurrent_tasks", "current_load = 1"),
    ("CHECK-10", "worker", "current_load = -1", "current_load >= 0", "current_load = 0"),
    not_before("worker", "last_heartbeat", "created_at"),
    not_before("worker", "shutdown_at", "created_at", "state = 'shutdown', "),
    needs("CHECK-11", "uet_worker", "state = 'TERMINATED'", "shutdown_at", "now()"),
    ("CHECK-11", "uet_worker", "state = 'BUSY', shutdown_at = now()", "shutdown_at", "state = 'BUSY'"),
    not_before("supervised_worker", "last_heartbeat", "created_at"),
    ("SUPERVISED-8", "supervised_worker", "tasks = '{a,b}'", "cardinality(tasks) <= capacity", "tasks = '{a}'"),
    (
        "SUPERVISED-8",
        "supervised_worker",
        "status = 'COMPLETED', tasks = '{a}'",
        "'COMPLETED'",
        "status = 'COMPLETED'",
    ),
    needs("CHECK-12", "patch_ledger", "state = 'quarantined'", "quarantine_reason", "'conflict'"),
    (
        "CHECK-12",
        "patch_ledger",
        f"state = 'rolled_back', {VALID}",
        "rollback_reason IS NOT NULL",
        f"state = 'rolled_back', rollback_reason = 'regression', {VALID}",
    ),
    not_before("patch_ledger", "updated_at", "created_at"),
    *(not_before("patch_ledger", when, "created_at") for when in ("quarantined_at", "rolled_back_at")),
    ("CHECK-14", "patch_ledger", "apply_retries = 4", "apply_retries <= 3", "apply_retries = 3"),
    *(
        ("CHECK-15", "test_gate", f"state = '{end}'{so_far}", words, f"state = '{end}', {GATE}")
        for GATE in ("exit_code = 0, completed_at = now(), stdout = '', stderr = ''",)
        for end in ("PASSED", "FAILED")
        for so_far, words in (
            (", completed_at = now(), stdout = '', stderr = ''", "exit_code IS NOT NULL"),
            (", exit_code = 0, stdout = '', stderr = ''", "completed_at IS NOT NULL"),
            (", exit_code = 0, completed_at = now(), stderr = ''", "stdout IS NOT NULL"),
            (", exit_code = 0, completed_at = now(), stdout = ''", "stderr IS NOT NULL"),
        )
    ),
    ("CHECK-15", "test_gate", "gate_type = 'SMOKE'", "SECURITY", "gate_type = 'SECURITY'"),
    ("CHECK-16", "circuit_breaker", "failure_threshold = 0", "failure_threshold >= 1", "failure_threshold = 1"),
    ("CHECK-16", "circuit_breaker", "cooldown_seconds = 0", "cooldown_seconds > ", "cooldown_seconds = 0.1"),
    ("CHECK-16", "circuit_breaker", "success_threshold = 0", "success_threshold >= 1", "success_threshold = 1"),
    ("CHECK-16", "circuit_breaker", "failure_count = -1", "failure_count >= 0", "failure_count = 0"),
    ("CHECK-16", "circuit_breaker", "success_count = -1", "success_count >= 0", "success_count = 0"),
    ("JOB-13", "job", "status = 'PENDING', task_description = ''", "task_description", "status = 'PENDING'"),
    ("CHECK-17", "job", "depth = 6", "depth <= 5", "depth = 5"),
    ("CHECK-17", "job", "depth = -1", "depth >= 0", "depth = 0"),
    ("CHECK-2, CHECK-17", "job", "worker_count = 0", "worker_count >= 1", "worker_count = 1"),
    ("CHECK-2, CHECK-17", "job", "worker_count = 11", "worker_count <= 10", "worker_count = 10"),
    *(
        needs("CHECK-2, CHECK-17", "job", f"status = '{end}'", "completed_at", "now()")
        for end in ("COMPLETED", "FAILED", "CANCELED")
    ),
    ("CHECK-2, CHECK-17", "job", "completed_at = now()", "completed_at IS NOT NULL", "started_at = now()"),
]
