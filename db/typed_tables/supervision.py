"""Circuit breakers, workers under a supervisor, and jobs."""

from sqlalchemy import (
    Column,
    DateTime,
    Double,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from db.tables import metadata

circuit_breakers = Table(
    "circuit_breakers",
    metadata,
    Column("breaker_id", Uuid, ForeignKey("workflow_instances.id"), primary_key=True),
    Column("project_id", Uuid, nullable=False),
    Column("tool_id", String(100), nullable=False),
    Column("state", String(20), nullable=False),
    Column("failure_threshold", Integer, nullable=False, server_default=text("5")),
    Column("cooldown_seconds", Double, nullable=False, server_default=text("60")),
    Column("success_threshold", Integer, nullable=False, server_default=text("1")),
    Column("failure_count", Integer, nullable=False, server_default=text("0")),
    Column("success_count", Integer, nullable=False, server_default=text("0")),
    Column("last_failure_at", DateTime(timezone=True)),
    Column("opened_at", DateTime(timezone=True)),
    Column("trial_token", Uuid),
    Column("trial_until", DateTime(timezone=True)),
    Column("updated_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    UniqueConstraint("project_id", "tool_id"),
)

supervised_workers = Table(
    "supervised_workers",
    metadata,
    Column("id", Uuid, ForeignKey("workflow_instances.id"), primary_key=True),
    Column("workspace_id", String(100), nullable=False),
    Column("status", String(20), nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("updated_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("metadata", JSONB, nullable=False, server_default=text("'{}'::jsonb")),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", Uuid, ForeignKey("workflow_instances.id"), primary_key=True),
    Column("parent_job_id", Uuid, ForeignKey("jobs.id")),
    Column("depth", Integer, nullable=False),
    Column("status", String(20), nullable=False),
    Column("worker_count", Integer, nullable=False, server_default=text("1")),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("started_at", DateTime(timezone=True)),
    Column("completed_at", DateTime(timezone=True)),
    Column("task_description", Text, nullable=False),
    Index("jobs_parent", "parent_job_id"),
)
