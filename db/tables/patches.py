"""Patches and their ledger entries."""

from sqlalchemy import Column, ForeignKey, Index, String, Table, Text, Uuid, text
from sqlalchemy.dialects.postgresql import JSONB

from interlock.db.tables.columns import count, document, flag, instance_key, instant, stamped
from interlock.db.tables.core import metadata

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
    Column("patch_id", String(100), ForeignKey("patches.patch_id"), nullable=False),
    Column("workstream_id", Uuid, ForeignKey("workstreams.ws_id"), nullable=False),
    Column("run_id", Uuid, ForeignKey("runs.run_id"), nullable=False),
    Column("task_id", Uuid, ForeignKey("tasks.task_id")),
    Column("phase_id", String(100), ForeignKey("phases.phase_id"), nullable=False),
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
    Column("state_history", JSONB, nullable=False, server_default=text("'[]'::jsonb")),
    stamped("created_at"),
    stamped("updated_at"),
    document("metadata"),
    Index("patch_ledger_entries_patch", "patch_id"),
    Index("patch_ledger_entries_state", "state"),
    Index("patch_ledger_entries_task", "task_id"),
    Index("patch_ledger_entries_updated", "updated_at"),
    Index("patch_ledger_entries_workstream", "workstream_id"),
)
