"""Supervised workers and jobs (docs/spec/supervision.md): their rows, who holds whom, and what workers hold."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, RowMapping, Select, case, cast, func, select, update
from sqlalchemy.dialects.postgresql import JSONB, insert

from interlock.db.connection import sql
from interlock.db.schema import lock_number
from interlock.db.tables import jobs, supervised_workers
from interlock.db.tables.core import instances, links
from interlock.db.tables.core import transitions as history

POOL_LOCK = lock_number(0x1E72)  # the advisory locks' namespace: who gives out the workers of a project

# What a worker holds is what its history told last; one that has ended holds nothing.
_resources = case(
    (supervised_workers.c.status.in_(("COMPLETED", "FAILED", "TERMINATED")), cast([], JSONB)),
    else_=func.coalesce(
        select(history.c.metadata["resources"])
        .where(history.c.workflow_id == supervised_workers.c.id, history.c.metadata.has_key("resources"))
        .order_by(history.c.seq.desc())
        .limit(1)
        .scalar_subquery(),
        cast([], JSONB),
    ),
).label("resources")
_WORKER = (instances.c.entity_id, instances.c.project_id, instances.c.version, *supervised_workers.c, _resources)
_JOB = (instances.c.entity_id, instances.c.project_id, *jobs.c)


def worker(connection: Connection, worker_id: UUID, *, lock: bool = False) -> RowMapping:
    """A supervised worker's row with its name, its project and its version."""
    query = _workers().where(supervised_workers.c.id == worker_id)
    if lock:
        query = query.with_for_update(of=supervised_workers, key_share=True)
    return connection.execute(query).mappings().one()


def workers(
    connection: Connection, *, status: str | None = None, job_id: UUID | None = None, limit: int = 50
) -> Sequence[RowMapping]:
    """The newest supervised workers, of one status or one job if given."""
    query = _workers().order_by(supervised_workers.c.created_at.desc(), supervised_workers.c.id).limit(limit)
    if status:
        query = query.where(supervised_workers.c.status == status)
    if job_id:
        held = select(links.c.target_id).where(links.c.source_id == job_id, links.c.role == "workers")
        query = query.where(supervised_workers.c.id.in_(held))
    return connection.execute(query).mappings().all()


def job(connection: Connection, job_id: UUID) -> RowMapping:
    """A job's row with its name, its project, its version, and how many of its workers are idle."""
    return connection.exec_driver_sql(sql("job"), {"id": job_id}).mappings().one()


def jobs_page(connection: Connection, *, status: str | None = None, limit: int = 50) -> Sequence[RowMapping]:
    """The newest jobs, of one status if given."""
    query = select(*_JOB).join(instances, instances.c.id == jobs.c.id).order_by(jobs.c.created_at.desc()).limit(limit)
    if status:
        query = query.where(jobs.c.status == status)
    return connection.execute(query).mappings().all()


def tree(connection: Connection, job_id: UUID) -> Sequence[RowMapping]:
    """A job and all its descendants, parents before children."""
    return connection.exec_driver_sql(sql("job_tree"), {"id": job_id}).mappings().all()


def partitions_following(connection: Connection, job_id: UUID) -> Sequence[int]:
    """The partitions of a job's workers and descendants that have been told something and not moved yet."""
    return connection.exec_driver_sql(sql("job_followers"), {"id": job_id}).scalars().all()


def reserve(connection: Connection, job_id: UUID) -> bool:
    """Let a pending job hold as many idle workers as it asks for; False, and none more, where there are too few.

    One transaction at a time does this in a project: two jobs never hold one worker, and never half of what they need.
    """
    project_id = job(connection, job_id)["project_id"]
    connection.execute(select(func.pg_advisory_xact_lock(POOL_LOCK, func.hashtext(str(project_id)))))
    standing = job(connection, job_id)
    if standing["status"] != "PENDING":
        return False
    missing = max(0, standing["worker_count"] - standing["idle"])
    given = {"project_id": project_id, "limit": missing}
    idle = connection.exec_driver_sql(sql("idle_workers"), given).scalars().all()
    if len(idle) < missing:
        return False
    for worker_id in idle:
        hold(connection, job_id, worker_id)
    return True


def hold(connection: Connection, job_id: UUID, worker_id: UUID) -> None:
    """Make a worker one of a job's: it moves with it."""
    row = {"source_id": job_id, "role": "workers", "inverse": "job", "target_id": worker_id}
    connection.execute(insert(links).values(row).on_conflict_do_nothing())


def servable(connection: Connection, *, limit: int) -> Sequence[RowMapping]:
    """(id, version) of pending jobs that could be given their workers now."""
    return connection.exec_driver_sql(sql("jobs_servable"), {"limit": limit}).mappings().all()


def stranded(connection: Connection, *, job_id: UUID | None = None, limit: int) -> Sequence[RowMapping]:
    """(id, version) of paused workers whose job (or the one given) is over."""
    return connection.exec_driver_sql(sql("workers_stranded"), {"job_id": job_id, "limit": limit}).mappings().all()


def note(connection: Connection, worker_id: UUID, facts: Mapping[str, Any]) -> None:
    """Write facts that are no state (what it holds, how often it was tried again) into a worker's metadata."""
    merged = supervised_workers.c.metadata.op("||")(cast(facts, JSONB))
    connection.execute(update(supervised_workers).where(supervised_workers.c.id == worker_id).values(metadata=merged))


def _workers() -> Select[Any]:
    return select(*_WORKER).join(instances, instances.c.id == supervised_workers.c.id)
