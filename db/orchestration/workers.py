"""Workers: heartbeats, silent workers, free ones, and those that claim nothing."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from uuid import UUID

from sqlalchemy import Connection, RowMapping, String, and_, cast, func, or_, select, update

from interlock.db.core import requests
from interlock.db.schema import in_schema
from interlock.db.statements import among, matching, queries
from interlock.db.tables.core import instances
from interlock.db.tables.orchestration import workers

sql = queries(__file__)

BEAT = "send a heartbeat"

# Workers that are alive: one heap-only update each, and nothing else is touched. In the order of their ids, so that two
# who speak for the same workers never wait for each other both. Nobody speaks for them without their secrets:
# a subquery looks each up in the index, where a join might read the whole table.
_HEARTBEAT = in_schema("""
WITH alive AS (
    SELECT worker_id
      FROM interlock.workers w
      JOIN unnest(%(ids)s::uuid[], %(secrets)s::text[]) AS s (worker_id, secret) USING (worker_id)
     WHERE w.shutdown_at IS NULL
       AND ((SELECT interlock.is_secret_of(context, s.secret) FROM interlock.workflow_instances WHERE id = worker_id)
            OR interlock.as_itself(worker_id, s.secret, %(deed)s))
     ORDER BY worker_id FOR NO KEY UPDATE OF w
)
UPDATE interlock.workers w SET last_heartbeat = GREATEST(now(), last_heartbeat)
  FROM alive a WHERE w.worker_id = a.worker_id
RETURNING w.worker_id, w.name, w.state, w.draining
""")
# The workers that the pool processes of one Celery node registered and that are not shut down.
_OF_NODE = in_schema("""
SELECT w.worker_id, w.name, w.state, w.draining, i.version, (i.context->>'pid')::integer AS pid,
       i.context->>'node' = %(node)s AS ours,
       CASE w.state WHEN 'busy' THEN 'health_check_timeout' ELSE 'max_timeout_exceeded' END AS owed
  FROM interlock.workers w JOIN interlock.workflow_instances i ON i.id = w.worker_id
 WHERE (i.context->>'node' = %(node)s OR i.context->>'pid_namespace' = %(namespace)s)
   AND w.shutdown_at IS NULL AND w.project IS NULL
   FOR NO KEY UPDATE OF w SKIP LOCKED
""")


def heartbeat(connection: Connection, secrets: Mapping[UUID, str]) -> Sequence[RowMapping]:
    """Record heartbeats of many workers in one statement; returns (worker_id, name, state, draining) of each.

    A worker that is shut down or TERMINATED is left out, and must register again.

    Args:
        connection: the caller's transaction.
        secrets: the secret of each worker's registration.

    Raises:
        NotYours: a secret is not its worker's; no heartbeat is recorded.
    """
    rows = [{"workflow_id": each, "proof": secret, "trigger": BEAT} for each, secret in secrets.items()]
    with requests.refusing("as_itself", rows):
        parameters = {"ids": list(secrets), "secrets": list(secrets.values()), "deed": BEAT}
        return connection.exec_driver_sql(_HEARTBEAT, parameters).mappings().all()


def silent(connection: Connection, *, silent_seconds: float, gone_seconds: float, limit: int) -> Sequence[RowMapping]:
    """Lock workers whose heartbeats stopped, skipping locked ones.

    Args:
        connection: the sweep's transaction.
        silent_seconds: a worker that holds a claim and is silent for longer loses its tasks (WORKER-7); a `uet_worker`
            in any state has crashed (UET-2).
        gone_seconds: an unresponsive, idle or suspended one silent for longer is shut down.
        limit: the most workers to return.

    Returns:
        worker_id, name, state, draining, version, `owed`: the trigger to fire, None if it only loses its tasks; and
        `ended`: it has ended, and holds claims all the same.
    """
    parameters = {"silent_seconds": silent_seconds, "gone_seconds": gone_seconds, "limit": limit}
    return connection.exec_driver_sql(sql("silent_workers"), parameters).mappings().all()


def of_node(connection: Connection, node: str, namespace: str | None) -> Sequence[RowMapping]:
    """Lock the workers of one Celery node, and of others in a pid namespace, that are not shut down.

    Returns:
        Rows like `silent`, with `pid`, and whether they are of the node (`ours`).
    """
    return connection.exec_driver_sql(_OF_NODE, {"node": node, "namespace": namespace}).mappings().all()


def drain(connection: Connection, worker_id: UUID, *, by: str | None, reason: str | None) -> int:
    """Mark a worker as draining, permanently; returns how many tasks it still holds.

    Args:
        connection: the caller's transaction.
        worker_id: the worker.
        by, reason: who wants it to leave, and why; None: itself. Who asked first stays.
    """
    asked = {
        "drained_by": func.coalesce(workers.c.drained_by, by),
        "drain_reason": func.coalesce(workers.c.drain_reason, reason),
    }
    statement = update(workers).where(workers.c.worker_id == worker_id).values(draining=True, **asked)
    return int(connection.execute(statement.returning(workers.c.current_load)).scalar_one())


def is_silent(connection: Connection, worker_id: UUID, *, silent_seconds: float) -> bool:
    """Whether a worker's last heartbeat is longer ago than that."""
    silence = func.now() - workers.c.last_heartbeat > func.make_interval(0, 0, 0, 0, 0, 0, silent_seconds)
    return bool(connection.execute(select(silence).where(workers.c.worker_id == worker_id)).scalar_one())


def count_free_workers(connection: Connection, *, silent_seconds: float, limit: int) -> int:
    """How many worker processes could take a waiting task now, counting at most `limit` tasks."""
    parameters = {"silent_seconds": silent_seconds, "limit": limit}
    return int(connection.exec_driver_sql(sql("free_hands"), parameters).scalar_one())


def starving(
    connection: Connection, *, silent_seconds: float, waited_seconds: float, limit: int
) -> Sequence[RowMapping]:
    """(name, last_took_at, task, seconds) of live workers with room that have left a fitting task waiting this long."""
    parameters = {"silent_seconds": silent_seconds, "waited_seconds": waited_seconds, "limit": limit}
    return connection.exec_driver_sql(sql("starving"), parameters).mappings().all()


def unservable(connection: Connection, *, waited_seconds: float, limit: int) -> Sequence[RowMapping]:
    """(task, task_id, tasks, seconds, lacking) of tasks waiting this long that no worker can take.

    Tasks with the same requirements are one row: the longest waiting, their number, and the capabilities that no worker
    offers (`lacking`). If none is lacking, no single worker offers all of them, or affinity excludes those that do.
    """
    parameters = {"waited_seconds": waited_seconds, "limit": limit}
    return connection.exec_driver_sql(sql("unservable"), parameters).mappings().all()


def count_by_state(connection: Connection) -> dict[str, int]:
    """State -> number of workers, without those that have ended."""
    query = select(workers.c.state, func.count()).where(workers.c.shutdown_at.is_(None)).group_by(workers.c.state)
    return {state: count for state, count in connection.execute(query)}


def page(
    connection: Connection,
    *,
    state: str | None = None,
    projects: Collection[str] | None = None,
    ended: bool = True,
    limit: int = 50,
) -> Sequence[RowMapping]:
    """The newest workers, with the `version` of each.

    Args:
        connection: any.
        state: in this one only; None: in any.
        projects: those whose instance is of one of these; None: of all. Workers that serve all have a project too.
        ended: also those that are shut down.
        limit: the most to return.
    """
    query = select(workers, instances.c.version).join(instances, instances.c.id == workers.c.worker_id)
    query = matching(query, (workers.c.state, state))
    if projects is not None:
        query = query.where(instances.c.project.in_(projects))
    if not ended:
        query = query.where(workers.c.shutdown_at.is_(None))
    query = query.order_by(workers.c.created_at.desc(), workers.c.worker_id).limit(limit)
    return connection.execute(query).mappings().all()


def get(connection: Connection, worker_ids: Iterable[UUID]) -> dict[UUID, RowMapping]:
    """Workers by their ids."""
    query = select(workers).where(among(workers.c.worker_id, worker_ids))
    return {row["worker_id"]: row for row in connection.execute(query).mappings()}


def versions(connection: Connection, worker_ids: Iterable[UUID]) -> dict[UUID, int]:
    """Each worker's instance version."""
    query = select(instances.c.id, instances.c.version).where(among(instances.c.id, worker_ids))
    return {row[0]: row[1] for row in connection.execute(query)}


def find_by_name(connection: Connection, name: str, *, project: str | None = None) -> RowMapping | None:
    """The latest worker of a name. Each new registration of NAME is listed as NAME#1, NAME#2, …

    Args:
        connection: any.
        name: the registered name, or any worker's UUID as text, which takes precedence over names.
        project: whose `uet_worker` it is; None: it is a `worker`, which serves all projects.
    """
    by_id = cast(workers.c.worker_id, String) == name
    named = or_(func.split_part(workers.c.name, "#", 1) == name, workers.c.name == name)
    query = (
        select(workers)
        .where(or_(and_(workers.c.project.is_not_distinct_from(project), named), by_id))
        .order_by(by_id.desc(), workers.c.created_at.desc(), workers.c.worker_id.desc())
    )
    return connection.execute(query.limit(1)).mappings().first()
