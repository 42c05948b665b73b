"""Runs and workstreams, what the scheduler counts of them, and what it still has to look at."""

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    ForeignKey,
    Identity,
    Index,
    Integer,
    String,
    Table,
    Text,
    Uuid,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from db.tables import metadata

phases = Table(
    "phases",
    metadata,
    Column("phase_id", String(100), primary_key=True),
)

runs = Table(
    "runs",
    metadata,
    Column("run_id", Uuid, ForeignKey("workflow_instances.id"), primary_key=True),
    Column("phase_id", String(100), ForeignKey("phases.phase_id"), nullable=False),
    Column("state", String(20), nullable=False),
    Column("priority", Integer, nullable=False, server_default=text("0")),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("started_at", DateTime(timezone=True)),
    Column("completed_at", DateTime(timezone=True)),
    Column("metadata", JSONB, nullable=False, server_default=text("'{}'::jsonb")),
    Index("runs_phase", "phase_id"),
    Index("runs_state", "state"),
)

workstreams = Table(
    "workstreams",
    metadata,
    Column("ws_id", Uuid, ForeignKey("workflow_instances.id"), primary_key=True),
    Column("run_id", Uuid, ForeignKey("runs.run_id"), nullable=False),
    Column("phase_id", String(100), ForeignKey("phases.phase_id"), nullable=False),
    Column("state", String(20), nullable=False),
    Column("is_critical", Boolean, nullable=False, server_default=text("false")),
    Column("depends_on", ARRAY(Uuid), nullable=False, server_default=text("'{}'::uuid[]")),
    Column("affinity", ARRAY(Text), nullable=False, server_default=text("'{}'::text[]")),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("updated_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("completed_at", DateTime(timezone=True)),
    Column("metadata", JSONB, nullable=False, server_default=text("'{}'::jsonb")),
    Index("workstreams_run", "run_id"),
    Index("workstreams_state", "state"),
    Index("workstreams_updated", "updated_at"),
)

run_signals = Table(
    "run_signals",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("run_id", Uuid, nullable=False),
    Column("kind", String(20), nullable=False),
    Column("entity_id", Uuid, nullable=False),
    Column("parent_id", Uuid),
    Column("was", String(20)),
    Column("state", String(20), nullable=False),
    Column("critical", Boolean, nullable=False, server_default=text("false")),
    Index("run_signals_run", "run_id", "id"),
)

workstream_counts = Table(
    "workstream_counts",
    metadata,
    Column("ws_id", Uuid, ForeignKey("workstreams.ws_id"), primary_key=True),
    Column("pending", Integer, nullable=False, server_default=text("0")),
    Column("queued", Integer, nullable=False, server_default=text("0")),
    Column("running", Integer, nullable=False, server_default=text("0")),
    Column("validating", Integer, nullable=False, server_default=text("0")),
    Column("completed", Integer, nullable=False, server_default=text("0")),
    Column("failed", Integer, nullable=False, server_default=text("0")),
    Column("retrying", Integer, nullable=False, server_default=text("0")),
    Column("cancelled", Integer, nullable=False, server_default=text("0")),
    Column("blocked", Integer, nullable=False, server_default=text("0")),
    Column("critical_failures", Integer, nullable=False, server_default=text("0")),
    Column("quarantined_patches", Integer, nullable=False, server_default=text("0")),
    Column("unfinished_dependencies", Integer, nullable=False, server_default=text("0")),
    Column("skipped_dependencies", Integer, nullable=False, server_default=text("0")),
    Column("dead_dependencies", Integer, nullable=False, server_default=text("0")),
)

run_counts = Table(
    "run_counts",
    metadata,
    Column("run_id", Uuid, ForeignKey("runs.run_id"), primary_key=True),
    Column("planned", Integer, nullable=False, server_default=text("0")),
    Column("ready", Integer, nullable=False, server_default=text("0")),
    Column("blocked", Integer, nullable=False, server_default=text("0")),
    Column("executing", Integer, nullable=False, server_default=text("0")),
    Column("validating", Integer, nullable=False, server_default=text("0")),
    Column("paused", Integer, nullable=False, server_default=text("0")),
    Column("completed", Integer, nullable=False, server_default=text("0")),
    Column("failed", Integer, nullable=False, server_default=text("0")),
    Column("cancelled", Integer, nullable=False, server_default=text("0")),
    Column("skipped", Integer, nullable=False, server_default=text("0")),
    Column("critical_failures", Integer, nullable=False, server_default=text("0")),
)

plans = Table(
    "plans",
    metadata,
    Column("run_id", Uuid, ForeignKey("runs.run_id"), primary_key=True),
    Column("body", JSONB, nullable=False),
    Column("directory", Text, nullable=False),
)
