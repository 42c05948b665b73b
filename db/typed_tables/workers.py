"""Workers of the orchestration and of the execution engine."""

from sqlalchemy import (
    ARRAY,
    Boolean,
    Column,
    DateTime,
    ForeignKey,
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

workers = Table(
    "workers",
    metadata,
    Column("worker_id", Uuid, ForeignKey("workflow_instances.id"), primary_key=True),
    Column("name", String(100), nullable=False),
    Column("worker_type", String(50), nullable=False),
    Column("state", String(20), nullable=False),
    Column("capabilities", ARRAY(Text), nullable=False, server_default=text("'{}'::text[]")),
    Column("affinity", JSONB, nullable=False, server_default=text("'{}'::jsonb")),
    Column("current_load", Integer, nullable=False, server_default=text("0")),
    Column("max_concurrent_tasks", Integer, nullable=False, server_default=text("1")),
    Column("draining", Boolean, nullable=False, server_default=text("false")),
    Column("last_heartbeat", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("last_took_at", DateTime(timezone=True)),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("shutdown_at", DateTime(timezone=True)),
    Index("workers_state", "state"),
)

uet_workers = Table(
    "uet_workers",
    metadata,
    Column("worker_id", Uuid, ForeignKey("workflow_instances.id"), primary_key=True),
    Column("worker_type", String(50), nullable=False),
    Column("state", String(20), nullable=False),
    Column("affinity", JSONB, nullable=False, server_default=text("'{}'::jsonb")),
    Column("last_heartbeat", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("terminated_at", DateTime(timezone=True)),
)
