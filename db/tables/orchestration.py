"""The orchestration's tables, as `db.tables.core` has the engine's. PostgreSQL's triggers write their states."""

from sqlalchemy import ARRAY, BigInteger, Column, Double, Identity, Integer, String, Table, Text, Uuid
from sqlalchemy.dialects.postgresql import JSONB

from interlock.db.tables.columns import count, document, flag, ids, instance_key, instant, stamped, words
from interlock.db.tables.core import metadata

runs = Table(
    "runs",
    metadata,
    instance_key("run_id"),
    Column("phase_id", String(100), nullable=False),
    Column("state", String(20), nullable=False),
    count("priority"),
    stamped("created_at"),
    instant("started_at"),
    instant("completed_at"),
    document("metadata"),
)

workstreams = Table(
    "workstreams",
    metadata,
    instance_key("ws_id"),
    Column("run_id", Uuid, nullable=False),
    Column("phase_id", String(100), nullable=False),
    Column("state", String(20), nullable=False),
    flag("is_critical"),
    ids("depends_on"),
    words("affinity"),
    stamped("created_at"),
    stamped("updated_at"),
    instant("completed_at"),
    document("metadata"),
)

plans = Table(
    "plans",
    metadata,
    Column("run_id", Uuid, primary_key=True),
    document("body"),
    Column("directory", Text, nullable=False),
)

tasks = Table(
    "tasks",
    metadata,
    instance_key("task_id"),
    Column("workstream_id", Uuid, nullable=False),
    Column("run_id", Uuid, nullable=False),
    Column("state", String(20), nullable=False),
    Column("kind", String(20), nullable=False),
    Column("worker_id", Uuid),
    flag("is_critical"),
    ids("depends_on"),
    ids("gate_dependencies"),
    ids("blocked_by"),
    words("required_capabilities"),
    words("affinity"),
    count("priority"),
    count("retry_count"),
    count("max_retries"),
    Column("timeout_sec", Double, nullable=False),
    count("unmet"),
    count("dead"),
    flag("left_out"),
    Column("exit_code", Integer),
    Column("last_error", Text),
    stamped("created_at"),
    instant("started_at"),
    instant("completed_at"),
    instant("cancelled_at"),
    document("metadata"),
)

task_claims = Table(
    "task_claims",
    metadata,
    Column("token", BigInteger, Identity(always=True), primary_key=True),
    Column("task_id", Uuid, nullable=False),
    Column("run_id", Uuid, nullable=False),
    Column("worker_id", Uuid, nullable=False),
    stamped("claimed_at"),
    instant("revoked_at"),
    instant("ended_at"),
)

test_gates = Table(
    "test_gates",
    metadata,
    instance_key("gate_id"),
    Column("gate_type", String(20), nullable=False),
    Column("phase_id", String(100), nullable=False),
    Column("workstream_id", Uuid),
    Column("run_id", Uuid),
    Column("state", String(20), nullable=False),
    document("command"),
    ids("depends_on"),
    Column("moment", String(10), nullable=False),
    count("reruns_left"),
    flag("lost"),
    Column("exit_code", Integer),
    Column("stdout", Text),
    Column("stderr", Text),
    Column("duration_sec", Double),
    instant("started_at"),
    instant("completed_at"),
    stamped("created_at"),
)

commands = Table(
    "commands",
    metadata,
    instance_key("workflow_id"),
    Column("run_id", Uuid, nullable=False),
    Column("source", String(10), nullable=False),
    Column("made_by", String(100), nullable=False),
    Column("reason", Text),
    Column("kind", String(10), nullable=False),
    words("argv"),
    document("env"),
    document("env_from"),
    Column("cwd", Text),
    document("limits"),
    document("sandbox"),
    Column("timeout_sec", Double),
    Column("expected_exit_codes", ARRAY(Integer), nullable=False),
    Column("tool", String(100)),
    Column("patch_id", String(100)),
    Column("message", Text),
)

workers = Table(
    "workers",
    metadata,
    instance_key("worker_id"),
    Column("name", String(100), nullable=False),
    Column("worker_type", String(50), nullable=False),
    Column("state", String(20), nullable=False),
    words("capabilities"),
    document("affinity"),
    count("current_load"),
    count("max_concurrent_tasks"),
    flag("draining"),
    Column("drained_by", String(100)),
    Column("drain_reason", Text),
    stamped("last_heartbeat"),
    instant("last_took_at"),
    stamped("created_at"),
    instant("shutdown_at"),
)

patches = Table(
    "patches",
    metadata,
    Column("patch_id", String(100), primary_key=True),
    Column("body", Text, nullable=False),
    Column("created_by", String(100), nullable=False),
    stamped("created_at"),
)

patch_ledger_entries = Table(
    "patch_ledger_entries",
    metadata,
    instance_key("ledger_id"),
    Column("patch_id", String(100), nullable=False),
    Column("workstream_id", Uuid, nullable=False),
    Column("run_id", Uuid, nullable=False),
    Column("task_id", Uuid),
    Column("phase_id", String(100), nullable=False),
    Column("state", String(20), nullable=False),
    flag("validation_format_passed"),
    flag("validation_scope_passed"),
    flag("validation_constraints_passed"),
    flag("validation_tests_passed"),
    count("apply_retries"),
    Column("commit_sha", String(64)),
    Column("quarantine_reason", Text),
    Column("quarantine_metadata", JSONB),
    instant("quarantined_at"),
    Column("rollback_reason", Text),
    Column("rollback_compensation", JSONB),
    instant("rolled_back_at"),
    document("state_history"),
    stamped("created_at"),
    stamped("updated_at"),
    document("metadata"),
)

circuit_breakers = Table(
    "circuit_breakers",
    metadata,
    instance_key("breaker_id"),
    Column("project", String(100), nullable=False),
    Column("tool_id", String(100), nullable=False),
    Column("state", String(20), nullable=False),
    count("failure_threshold"),
    Column("cooldown_seconds", Double, nullable=False),
    count("success_threshold"),
    count("failure_count"),
    count("success_count"),
    instant("last_failure_at"),
    instant("opened_at"),
    Column("trial_token", Uuid),
    instant("trial_until"),
    stamped("updated_at"),
)

supervised_workers = Table(
    "supervised_workers",
    metadata,
    instance_key("id"),
    Column("workspace_id", String(100), nullable=False),
    Column("status", String(20), nullable=False),
    stamped("created_at"),
    stamped("updated_at"),
    document("metadata"),
)

jobs = Table(
    "jobs",
    metadata,
    instance_key("id"),
    Column("parent_job_id", Uuid),
    count("depth"),
    Column("status", String(20), nullable=False),
    count("worker_count"),
    stamped("created_at"),
    instant("started_at"),
    instant("completed_at"),
    Column("task_description", Text, nullable=False),
)
