"""The orchestration's tables, as `db.tables.core` has the engine's. PostgreSQL's triggers write their states."""

from sqlalchemy import ARRAY, BigInteger, Column, Double, Identity, Integer, String, Table, Text, Uuid
from sqlalchemy.dialects.postgresql import JSONB

from interlock.db.tables.columns import (
    codes,
    counts,
    documents,
    flags,
    ids,
    instants,
    names,
    optional,
    references,
    seconds,
    short_codes,
    stamps,
    texts,
    words,
)
from interlock.db.tables.core import metadata

runs = Table(
    "runs",
    metadata,
    *references("run_id", primary_key=True),
    *names("phase_id"),
    *codes("state"),
    *counts("priority"),
    *stamps("created_at"),
    *instants("started_at", "completed_at"),
    *documents("metadata"),
)

workstreams = Table(
    "workstreams",
    metadata,
    *references("ws_id", primary_key=True),
    *references("run_id"),
    *names("phase_id"),
    *optional(Uuid, "phase"),
    *codes("state"),
    *flags("is_critical"),
    *ids("depends_on"),
    *words("affinity"),
    *flags("left_out"),
    *stamps("created_at", "updated_at"),
    *instants("completed_at"),
    *documents("metadata"),
)

plans = Table(
    "plans",
    metadata,
    *references("run_id", primary_key=True),
    *documents("body"),
    *texts("directory"),
)

tasks = Table(
    "tasks",
    metadata,
    *references("task_id", primary_key=True),
    *references("workstream_id", "run_id"),
    *codes("state", "kind"),
    *optional(Uuid, "worker_id"),
    *flags("is_critical"),
    *ids("depends_on", "gate_dependencies", "blocked_by"),
    *words("required_capabilities", "affinity"),
    *optional(String(100), "tool", "limit_key"),
    *counts("priority", "retry_count", "max_retries"),
    *seconds("timeout_sec"),
    *counts("unmet", "dead"),
    *flags("left_out"),
    *optional(Integer, "exit_code"),
    *optional(Text, "last_error"),
    *stamps("created_at"),
    *instants("started_at", "completed_at", "cancelled_at"),
    *documents("metadata"),
)

task_claims = Table(
    "task_claims",
    metadata,
    Column("claim_id", BigInteger, Identity(always=True), primary_key=True),
    Column("token", BigInteger, nullable=False),
    *references("task_id", "run_id", "worker_id"),
    *stamps("claimed_at"),
    *instants("revoked_at", "ended_at"),
)

test_gates = Table(
    "test_gates",
    metadata,
    *references("gate_id", primary_key=True),
    *codes("gate_type"),
    *names("phase_id"),
    *optional(Uuid, "workstream_id", "run_id"),
    *codes("state"),
    *documents("command"),
    *ids("depends_on"),
    *short_codes("moment"),
    *counts("reruns_left"),
    *flags("lost"),
    *optional(Integer, "exit_code"),
    *optional(Text, "stdout", "stderr"),
    *optional(Double, "duration_sec"),
    *instants("started_at", "completed_at"),
    *stamps("created_at"),
)

commands = Table(
    "commands",
    metadata,
    *references("workflow_id", primary_key=True),
    *references("run_id"),
    *short_codes("source"),
    *names("made_by"),
    *optional(Text, "reason"),
    *short_codes("kind"),
    *words("argv"),
    *documents("env", "env_from"),
    *optional(Text, "cwd"),
    *documents("limits", "sandbox"),
    *optional(Double, "timeout_sec"),
    Column("expected_exit_codes", ARRAY(Integer), nullable=False),
    *optional(String(100), "tool", "patch_id"),
    *optional(Text, "message"),
)

workers = Table(
    "workers",
    metadata,
    *references("worker_id", primary_key=True),
    *names("name"),
    *optional(String(100), "project"),
    *names("worker_type"),
    *codes("state"),
    *words("capabilities"),
    *documents("affinity"),
    *counts("current_load", "max_concurrent_tasks"),
    *flags("draining"),
    *optional(String(100), "drained_by"),
    *optional(Text, "drain_reason"),
    *stamps("last_heartbeat"),
    *instants("last_took_at"),
    *stamps("created_at"),
    *instants("shutdown_at"),
)

patches = Table(
    "patches",
    metadata,
    *names("patch_id", primary_key=True),
    *texts("body"),
    *names("created_by"),
    *stamps("created_at"),
)

patch_ledger_entries = Table(
    "patch_ledger_entries",
    metadata,
    *references("ledger_id", primary_key=True),
    *names("patch_id"),
    *references("workstream_id", "run_id"),
    *optional(Uuid, "task_id"),
    *names("phase_id"),
    *codes("state"),
    *flags(
        "validation_format_passed",
        "validation_scope_passed",
        "validation_constraints_passed",
        "validation_tests_passed",
    ),
    *counts("apply_retries"),
    Column("commit_sha", String(64)),
    *optional(Text, "quarantine_reason"),
    *optional(JSONB, "quarantine_metadata"),
    *instants("quarantined_at"),
    *optional(Text, "rollback_reason"),
    *optional(JSONB, "rollback_compensation"),
    *instants("rolled_back_at"),
    *documents("state_history"),
    *stamps("created_at", "updated_at"),
    *documents("metadata"),
)

circuit_breakers = Table(
    "circuit_breakers",
    metadata,
    *references("breaker_id", primary_key=True),
    *names("project", "tool_id"),
    *codes("state"),
    *counts("failure_threshold"),
    *seconds("cooldown_seconds"),
    *counts("success_threshold", "failure_count", "success_count"),
    *instants("last_failure_at", "opened_at"),
    *optional(Uuid, "trial_token"),
    Column("trial_claim", BigInteger),
    *instants("trial_until"),
    *stamps("updated_at"),
)

breaker_configurations = Table(
    "breaker_configurations",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    *references("breaker_id"),
    *stamps("configured_at"),
    *names("configured_by"),
    *texts("reason"),
    *counts("failure_threshold"),
    *seconds("cooldown_seconds"),
    *counts("success_threshold", "old_failure_threshold"),
    *seconds("old_cooldown_seconds"),
    *counts("old_success_threshold"),
)

supervised_workers = Table(
    "supervised_workers",
    metadata,
    *references("id", primary_key=True),
    *names("workspace_id"),
    *codes("status"),
    *counts("capacity"),
    *words("tasks"),
    *stamps("last_heartbeat", "created_at", "updated_at"),
    *documents("metadata"),
)

jobs = Table(
    "jobs",
    metadata,
    *references("id", primary_key=True),
    *optional(Uuid, "parent_job_id"),
    *counts("depth"),
    *codes("status"),
    *counts("worker_count"),
    *stamps("created_at"),
    *instants("started_at", "completed_at"),
    *texts("task_description"),
)
