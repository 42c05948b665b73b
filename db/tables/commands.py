"""The table of commands: what is run for each task and gate."""

from sqlalchemy import ARRAY, Column, Double, ForeignKey, Index, Integer, String, Table, Text, Uuid, text

from interlock.db.tables.columns import document, instance_key, words
from interlock.db.tables.core import metadata

commands = Table(
    "commands",
    metadata,
    instance_key("workflow_id"),
    Column("run_id", Uuid, ForeignKey("plans.run_id"), nullable=False),
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
    Column("expected_exit_codes", ARRAY(Integer), nullable=False, server_default=text("'{0}'::integer[]")),
    Column("tool", String(100)),
    Column("patch_id", String(100), ForeignKey("patches.patch_id")),
    Column("message", Text),
    Index("commands_patch", "patch_id", postgresql_where=text("(patch_id IS NOT NULL)")),
)
