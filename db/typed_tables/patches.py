"""Patches and their way through the ledger."""

from sqlalchemy import Boolean, Column, DateTime, ForeignKey, Index, Integer, String, Table, Text, Uuid, func, text
from sqlalchemy.dialects.postgresql import JSONB

from db.tables import metadata

patches = Table(
    "patches",
    metadata,
    Column("patch_id", String(100), primary_key=True),
    Column("body", Text, nullable=False),
    Column("created_by", String(100), nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
)

patch_ledger_entries = Table(
    "patch_ledger_entries",
    metadata,
    Column("ledger_id", Uuid, ForeignKey("workflow_instances.id"), primary_key=True),
    Column("patch_id", String(100), ForeignKey("patches.patch_id"), nullable=False),
    Column("workstream_id", Uuid, ForeignKey("workstreams.ws_id"), nullable=False),
    Column("run_id", Uuid, ForeignKey("runs.run_id"), nullable=False),
    Column("task_id", Uuid, ForeignKey("tasks.task_id")),
    Column("phase_id", String(100), ForeignKey("phases.phase_id"), nullable=False),
    Column("state", String(20), nullable=False),
    Column("validation_format_passed", Boolean, nullable=False, server_default=text("false")),
    Column("validation_scope_passed", Boolean, nullable=False, server_default=text("false")),
    Column("validation_constraints_passed", Boolean, nullable=False, server_default=text("false")),
    Column("validation_tests_passed", Boolean, nullable=False, server_default=text("false")),
    Column("apply_retries", Integer, nullable=False, server_default=text("0")),
    Column("commit_sha", String(64)),
    Column("quarantine_reason", Text),
    Column("quarantine_metadata", JSONB),
    Column("quarantined_at", DateTime(timezone=True)),
    Column("rollback_reason", Text),
    Column("rollback_compensation", JSONB),
    Column("rolled_back_at", DateTime(timezone=True)),
    Column("state_history", JSONB, nullable=False, server_default=text("'[]'::jsonb")),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("updated_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("metadata", JSONB, nullable=False, server_default=text("'{}'::jsonb")),
    Index("patch_ledger_entries_patch", "patch_id"),
    Index("patch_ledger_entries_state", "state"),
    Index("patch_ledger_entries_task", "task_id"),
    Index("patch_ledger_entries_updated", "updated_at"),
    Index("patch_ledger_entries_workstream", "workstream_id"),
)
