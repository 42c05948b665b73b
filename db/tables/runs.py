"""Runs and workstreams, the scheduler's counts, and its unprocessed signals."""

from sqlalchemy import BigInteger, Column, ForeignKey, Identity, Index, String, Table, Text, Uuid
from sqlalchemy.dialects.postgresql import JSONB

from interlock.db.tables.columns import count, document, flag, ids, instance_key, instant, stamped, words
from interlock.db.tables.core import metadata
from interlock.workflows.scheduling.counts import RUN_COUNTS, TASK_COUNTS

phases = Table(
    "phases",
    metadata,
    Column("phase_id", String(100), primary_key=True),
)

runs = Table(
    "runs",
    metadata,
    instance_key("run_id"),
    Column("phase_id", String(100), ForeignKey("phases.phase_id"), nullable=False),
    Column("state", String(20), nullable=False),
    count("priority"),
    stamped("created_at"),
    instant("started_at"),
    instant("completed_at"),
    document("metadata"),
    Index("runs_phase", "phase_id"),
    Index("runs_state", "state"),
)

workstreams = Table(
    "workstreams",
    metadata,
    instance_key("ws_id"),
    Column("run_id", Uuid, ForeignKey("runs.run_id"), nullable=False),
    Column("phase_id", String(100), ForeignKey("phases.phase_id"), nullable=False),
    Column("state", String(20), nullable=False),
    flag("is_critical"),
    ids("depends_on"),
    words("affinity"),
    stamped("created_at"),
    stamped("updated_at"),
    instant("completed_at"),
    document("metadata"),
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
    flag("critical"),
    Index("run_signals_run", "run_id", "id"),
)

workstream_counts = Table(
    "workstream_counts",
    metadata,
    Column("ws_id", Uuid, ForeignKey("workstreams.ws_id"), primary_key=True),
    *map(count, TASK_COUNTS),
)

run_counts = Table(
    "run_counts",
    metadata,
    Column("run_id", Uuid, ForeignKey("runs.run_id"), primary_key=True),
    *map(count, RUN_COUNTS),
)

plans = Table(
    "plans",
    metadata,
    Column("run_id", Uuid, ForeignKey("runs.run_id"), primary_key=True),
    Column("body", JSONB, nullable=False),
    Column("directory", Text, nullable=False),
)
