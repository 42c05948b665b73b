"""Circuit breakers, supervised workers and jobs."""

from sqlalchemy import Column, Double, ForeignKey, Index, Integer, String, Table, Text, UniqueConstraint, Uuid, text

from interlock.db.tables.columns import count, document, instance_key, instant, stamped
from interlock.db.tables.core import metadata

circuit_breakers = Table(
    "circuit_breakers",
    metadata,
    instance_key("breaker_id"),
    Column("project", String(100), nullable=False),
    Column("tool_id", String(100), nullable=False),
    Column("state", String(20), nullable=False),
    count("failure_threshold", 5),
    Column("cooldown_seconds", Double, nullable=False, server_default=text("60")),
    count("success_threshold", 1),
    count("failure_count"),
    count("success_count"),
    instant("last_failure_at"),
    instant("opened_at"),
    Column("trial_token", Uuid),
    instant("trial_until"),
    stamped("updated_at"),
    UniqueConstraint("project", "tool_id"),
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
    Column("parent_job_id", Uuid, ForeignKey("jobs.id")),
    Column("depth", Integer, nullable=False),
    Column("status", String(20), nullable=False),
    count("worker_count", 1),
    stamped("created_at"),
    instant("started_at"),
    instant("completed_at"),
    Column("task_description", Text, nullable=False),
    Index("jobs_parent", "parent_job_id"),
)
