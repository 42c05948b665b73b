"""Supervised workers and jobs (docs/spec/supervision.md): rows, allocations and resources."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, RowMapping, case, cast, func, select, update
from sqlalchemy.dialects.postgresql import JSONB, insert

from interlock.db.core.instances import newest
from interlock.db.core.portions import NEWEST, Portion
from interlock.db.orchestration import itself
from interlock.db.orchestration.workers import BEAT
from interlock.db.schema import in_schema, lock_number
from interlock.db.statements import functions, matching, queries
from interlock.db.tables.core import instances, links, transitions
from interlock.db.tables.orchestration import jobs, supervised_workers
from interlock.workflows.machines.supervision.supervised_worker import SUPERVISED_WORKER

sql = queries(__file__)

POOL_LOCK = lock_number(0x1E74)  # the namespace of the advisory locks for allocating a project's workers

# A worker's resources are those of its latest event that names some; an ended worker has none.
_resources = case(
    (supervised_workers.c.status.in_(sorted(SUPERVISED_WORKER.terminal)), cast([], JSONB)),
    else_=func.coalesce(
        select(transitions.c.metadata["resources"])
        .where(transitions.c.workflow_id == supervised_workers.c.id, transitions.c.metadata.has_key("resources"))
        .order_by(transitions.c.seq.desc())
        .limit(1)
        .scalar_subquery(),
        cast([], JSONB),
    ),
).label("resources")
_WORKER = (instances.c.entity_id, instances.c.project, instances.c.version, *supervised_workers.c, _resources)
_JOB = (instances.c.entity_id, instances.c.project, *jobs.c)

# A job with its name, its project, and how many of the workers it holds are idle.
_JOB_AND_IDLE = in_schema("""
SELECT j.id, i.entity_id, i.project, i.version, j.parent_job_id, j.depth, j.status, j.worker_count, j.task_description,
       j.created_at, j.started_at, j.completed_at,
       (SELECT count(*) FROM interlock.workflow_links l JOIN interlock.supervised_workers w ON w.id = l.target_id
         WHERE l.source_id = j.id AND l.role = 'workers' AND w.status = 'IDLE')::integer AS idle
  FROM interlock.jobs j JOIN interlock.workflow_instances i USING (id)
 WHERE j.id = %(id)s
""")
# Idle workers of a project that no job holds which may still need them; the longest idle first.
_IDLE_WORKERS = in_schema("""
SELECT w.id
  FROM interlock.supervised_workers w JOIN interlock.workflow_instances i USING (id)
 WHERE w.status = 'IDLE' AND i.project = %(project)s
   AND NOT EXISTS (SELECT FROM interlock.workflow_links l JOIN interlock.jobs j ON j.id = l.source_id
                    WHERE l.target_id = w.id AND l.role = 'workers' AND j.completed_at IS NULL)
 ORDER BY w.created_at, w.id
 LIMIT %(limit)s
""")
# Paused workers whose job is over, with no trigger pending: they could not complete with it, and nobody will resume
# them. Nor could those complete that were started with tasks of their own.
_STRANDED = in_schema("""
SELECT w.id, i.version
  FROM interlock.supervised_workers w JOIN interlock.workflow_instances i USING (id)
 WHERE (w.status = 'PAUSED' OR w.status = 'RUNNING' AND w.tasks <> '{}')
   AND EXISTS (SELECT FROM interlock.workflow_links l JOIN interlock.jobs j ON j.id = l.source_id
                WHERE l.target_id = w.id AND l.role = 'workers' AND j.completed_at IS NOT NULL
                  AND (%(job_id)s::uuid IS NULL OR j.id = %(job_id)s::uuid))
   AND NOT EXISTS (SELECT FROM interlock.trigger_requests r WHERE r.workflow_id = w.id AND r.status = 'pending')
 LIMIT %(limit)s
""")
# Running workers that can send heartbeats, which stopped, unless that was accepted already (SUPERVISED-9).
_SILENT = in_schema("""
SELECT w.id AS worker_id, i.entity_id AS name, false AS draining, i.version, 'error_unrecoverable' AS owed
  FROM interlock.supervised_workers w JOIN interlock.workflow_instances i USING (id)
 WHERE w.status = 'RUNNING' AND i.context ? 'secret_sha256'
   AND w.last_heartbeat < (SELECT now() - make_interval(secs => %(silent_seconds)s))
   AND NOT EXISTS (SELECT FROM interlock.trigger_requests r
                    WHERE r.request_id = 'interlock:' || w.id || ':' || i.version || ':error_unrecoverable')
 LIMIT %(limit)s
   FOR NO KEY UPDATE OF w SKIP LOCKED
""")
_HEARTBEAT = in_schema("""
UPDATE interlock.supervised_workers SET last_heartbeat = GREATEST(now(), last_heartbeat)
 WHERE id = %(worker_id)s AND status <> ALL (%(ended)s) AND interlock.as_itself(id, %(secret)s, %(deed)s)
""")

# Who may act for a worker or job: its supervisors; as a holder, the worker itself or one of the job's, by its secret.
_TRUSTED = in_schema("""
SELECT interlock.supervisors(%(id)s) AS name
UNION
SELECT entity_id FROM interlock.workflow_instances WHERE id = interlock.worker_of_secret(%(id)s, %(secret)s)
""")


def worker(connection: Connection, worker_id: UUID, *, lock: bool = False) -> RowMapping:
    """A supervised worker's row with its name, its project and its version."""
    query = select(*_WORKER).join(instances, instances.c.id == worker_id).where(supervised_workers.c.id == worker_id)
    if lock:
        query = query.with_for_update(of=supervised_workers, key_share=True)
    return connection.execute(query).mappings().one()


def workers(
    connection: Connection,
    portion: Portion = NEWEST,
    *,
    status: str | None = None,
    job_id: UUID | None = None,
) -> Sequence[RowMapping]:
    """The newest supervised workers, filtered by status and job if given."""
    query = newest(select(*_WORKER), supervised_workers.c.id, portion)
    query = matching(query, (supervised_workers.c.status, status))
    if job_id:
        held = select(links.c.target_id).where(links.c.source_id == job_id, links.c.role == "workers")
        query = query.where(supervised_workers.c.id.in_(held))
    return connection.execute(query).mappings().all()


def job(connection: Connection, job_id: UUID) -> RowMapping:
    """A job's row with its name, its project, its version, and how many of its workers are idle."""
    return connection.exec_driver_sql(_JOB_AND_IDLE, {"id": job_id}).mappings().one()


def jobs_page(connection: Connection, portion: Portion = NEWEST, *, status: str | None = None) -> Sequence[RowMapping]:
    """The newest jobs, of a status if given."""
    query = matching(newest(select(*_JOB), jobs.c.id, portion), (jobs.c.status, status))
    return connection.execute(query).mappings().all()


def tree(connection: Connection, job_id: UUID) -> Sequence[RowMapping]:
    """A job and all its descendants, parents before children."""
    return connection.exec_driver_sql(sql("job_tree"), {"id": job_id}).mappings().all()


def partitions_following(connection: Connection, job_id: UUID) -> Sequence[int]:
    """The partitions of a job's workers and descendants that have unapplied triggers."""
    return connection.exec_driver_sql(sql("job_followers"), {"id": job_id}).scalars().all()


def reserve(connection: Connection, job_id: UUID) -> bool:
    """Allocate to a pending job as many idle workers as it needs, and take its place under the limits that count it.

    One transaction at a time does this in a project, so that two jobs never share a worker or each get only some. The
    place is the job's once the start that the same transaction accepts is committed (LIMIT-4).

    Args:
        connection: the transaction that also accepts the start, READ COMMITTED.
        job_id: the job.

    Returns:
        Whether it may start; if not, there are too few workers or a limit has no room, and nothing is allocated.
    """
    project = job(connection, job_id)["project"]
    connection.execute(select(func.pg_advisory_xact_lock(POOL_LOCK, func.hashtext(project))))
    current = job(connection, job_id)
    if current["status"] != "PENDING":
        return False
    missing = max(0, current["worker_count"] - current["idle"])
    parameters = {"project": project, "limit": missing}
    idle = connection.exec_driver_sql(_IDLE_WORKERS, parameters).scalars().all()
    if len(idle) < missing or not connection.execute(select(functions.take_job_place(job_id))).scalar_one():
        return False
    for worker_id in idle:
        hold(connection, job_id, worker_id)
    return True


def hold(connection: Connection, job_id: UUID, worker_id: UUID) -> None:
    """Link a worker to a job, so that it moves with the job."""
    row = {"source_id": job_id, "role": "workers", "inverse": "job", "target_id": worker_id}
    connection.execute(insert(links).values(row).on_conflict_do_nothing())


def trusted(connection: Connection, instance_id: UUID, *, secret: str) -> frozenset[str]:
    """Who may act for a worker or job (SUPERVISED-7): its supervisors, and the holder whose secret it is."""
    parameters = {"id": instance_id, "secret": secret}
    return frozenset(connection.exec_driver_sql(_TRUSTED, parameters).scalars())


def servable(connection: Connection, *, limit: int) -> Sequence[RowMapping]:
    """(id, version) of pending jobs for which enough workers are idle, and limits have room."""
    return connection.exec_driver_sql(sql("jobs_servable"), {"limit": limit}).mappings().all()


def stranded(connection: Connection, *, job_id: UUID | None = None, limit: int) -> Sequence[RowMapping]:
    """(id, version) of workers that did not end with their job; with `job_id`, only of that job."""
    return connection.exec_driver_sql(_STRANDED, {"job_id": job_id, "limit": limit}).mappings().all()


def silent(connection: Connection, *, silent_seconds: float, limit: int) -> Sequence[RowMapping]:
    """Lock RUNNING workers whose heartbeats stopped (SUPERVISED-9), skipping locked ones.

    Returns:
        worker_id, name, draining (false), version, and `owed`: the trigger to fire.
    """
    parameters = {"silent_seconds": silent_seconds, "limit": limit}
    return connection.exec_driver_sql(_SILENT, parameters).mappings().all()


def heartbeat(connection: Connection, worker_id: UUID, secret: str) -> bool:
    """Record a worker's heartbeat; False, and nothing recorded: it has ended.

    Raises:
        NotYours: the secret is not the worker's.
    """
    with itself.refusing(worker_id, secret, BEAT):
        given = {"worker_id": worker_id, "ended": sorted(SUPERVISED_WORKER.terminal), "secret": secret, "deed": BEAT}
        return connection.exec_driver_sql(_HEARTBEAT, given).rowcount == 1


def now(connection: Connection) -> datetime:
    """When the transaction began, by the database's clock."""
    return connection.execute(select(func.now())).scalar_one()


def note(connection: Connection, worker_id: UUID, facts: Mapping[str, Any]) -> None:
    """Add facts (its resources, its number of retries) to a worker's metadata."""
    merged = supervised_workers.c.metadata.op("||")(cast(facts, JSONB))
    connection.execute(update(supervised_workers).where(supervised_workers.c.id == worker_id).values(metadata=merged))
