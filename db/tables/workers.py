"""Workers, and UET workers."""

from sqlalchemy import Column, Index, String, Table

from interlock.db.tables.columns import count, document, flag, instance_key, instant, stamped, words
from interlock.db.tables.core import metadata

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
    count("max_concurrent_tasks", 1),
    flag("draining"),
    stamped("last_heartbeat"),
    instant("last_took_at"),
    stamped("created_at"),
    instant("shutdown_at"),
    Index("workers_state", "state"),
)

uet_workers = Table(
    "uet_workers",
    metadata,
    instance_key("worker_id"),
    Column("worker_type", String(50), nullable=False),
    Column("state", String(20), nullable=False),
    document("affinity"),
    stamped("last_heartbeat"),
    stamped("created_at"),
    instant("terminated_at"),
)
