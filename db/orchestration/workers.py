"""Who is in the crew and alive: heartbeats, silences, who is free and who takes nothing."""

from collections.abc import Iterable, Sequence
from uuid import UUID

from sqlalchemy import Connection, RowMapping, String, cast, func, or_, select, update

from interlock.db.connection import sql
from interlock.db.statements import among
from interlock.db.tables import workers
from interlock.db.tables.core import instances


def heartbeat(connection: Connection, worker_ids: Iterable[UUID]) -> Sequence[RowMapping]:
    """Note that workers are alive, many in one statement; (worker_id, name, state, draining) of each.

    One that is shut down is left out: who hears nothing of itself registers anew.
    """
    given = {"ids": list(worker_ids)}
    return connection.exec_driver_sql(sql("heartbeat"), given).mappings().all()


def heartbeat_uet(connection: Connection, worker_ids: Iterable[UUID]) -> Sequence[RowMapping]:
    """As `heartbeat`, for workers of the execution engine (UET-1); one that is TERMINATED is left out."""
    given = {"ids": list(worker_ids)}
    return connection.exec_driver_sql(sql("heartbeat_uet"), given).mappings().all()


def silent(connection: Connection, *, silent_seconds: float, gone_seconds: float, limit: int) -> Sequence[RowMapping]:
    """Lock workers whose heartbeats stopped, but those that somebody else has locked.

    Args:
        connection: the sweep's transaction.
        silent_seconds: a busy worker silent for longer is unresponsive (WORKER-7).
        gone_seconds: an unresponsive or idle one silent for longer is shut down.
        limit: at most so many.

    Returns:
        worker_id, name, state, version, and `owed`: the trigger its machine is owed.
    """
    given = {"silent_seconds": silent_seconds, "gone_seconds": gone_seconds, "limit": limit}
    return connection.exec_driver_sql(sql("silent_workers"), given).mappings().all()


def silent_uet(connection: Connection, *, silent_seconds: float, limit: int) -> Sequence[RowMapping]:
    """Lock workers of the execution engine that are silent for longer (UET-2), at most `limit`; as `silent`."""
    given = {"silent_seconds": silent_seconds, "limit": limit}
    return connection.exec_driver_sql(sql("silent_uet_workers"), given).mappings().all()


def of_node(connection: Connection, node: str) -> Sequence[RowMapping]:
    """Lock the workers of one Celery node's pool processes, but those shut down; as `silent` returns them, with pid."""
    return connection.exec_driver_sql(sql("of_node"), {"node": node}).mappings().all()


def drain(connection: Connection, worker_id: UUID) -> int:
    """Let a worker take no more, for good; how many tasks it still holds."""
    statement = update(workers).where(workers.c.worker_id == worker_id).values(draining=True)
    return int(connection.execute(statement.returning(workers.c.current_load)).scalar_one())


def free_hands(connection: Connection, *, silent_seconds: float, limit: int) -> int:
    """How many worker processes could take a waiting task now, counting at most `limit` tasks."""
    given = {"silent_seconds": silent_seconds, "limit": limit}
    return int(connection.exec_driver_sql(sql("free_hands"), given).scalar_one())


def starving(
    connection: Connection, *, silent_seconds: float, waited_seconds: float, limit: int
) -> Sequence[RowMapping]:
    """(name, last_took_at, task, seconds) of live workers with room that leave a fitting task waiting so long."""
    given = {"silent_seconds": silent_seconds, "waited_seconds": waited_seconds, "limit": limit}
    return connection.exec_driver_sql(sql("starving"), given).mappings().all()


def unservable(connection: Connection, *, waited_seconds: float, limit: int) -> Sequence[RowMapping]:
    """(task, task_id, tasks, seconds, lacking) of what has waited so long and nobody registered could ever take.

    Tasks that wait for the same are one row: the longest waiting, how many, and what nobody at all offers. Where
    nothing is lacking, no single worker offers all of it, or affinity keeps away all who do.
    """
    given = {"waited_seconds": waited_seconds, "limit": limit}
    return connection.exec_driver_sql(sql("unservable"), given).mappings().all()


def count_by_state(connection: Connection) -> dict[str, int]:
    """State -> how many workers are in it, but for those shut down."""
    query = select(workers.c.state, func.count()).where(workers.c.state != "shutdown").group_by(workers.c.state)
    return {state: count for state, count in connection.execute(query)}


def page(connection: Connection, *, state: str | None = None, limit: int = 50) -> Sequence[RowMapping]:
    """The newest workers, in one state if given."""
    query = select(workers).order_by(workers.c.created_at.desc(), workers.c.worker_id).limit(limit)
    return connection.execute(query.where(workers.c.state == state) if state else query).mappings().all()


def get(connection: Connection, worker_ids: Iterable[UUID]) -> dict[UUID, RowMapping]:
    """Workers by their ids."""
    query = select(workers).where(among(workers.c.worker_id, worker_ids))
    return {row["worker_id"]: row for row in connection.execute(query).mappings()}


def versions(connection: Connection, worker_ids: Iterable[UUID]) -> dict[UUID, int]:
    """Where each worker's history stands."""
    query = select(instances.c.id, instances.c.version).where(among(instances.c.id, worker_ids))
    return {row[0]: row[1] for row in connection.execute(query)}


def called(connection: Connection, name: str) -> RowMapping | None:
    """The latest worker of a name; its earlier lives, called NAME#1, NAME#2, …, have ended.

    Args:
        connection: any.
        name: as it registered, or the UUID of one of its lives as text, which goes before others' names.
    """
    by_id = cast(workers.c.worker_id, String) == name
    query = (
        select(workers)
        .where(or_(func.split_part(workers.c.name, "#", 1) == name, workers.c.name == name, by_id))
        .order_by(by_id.desc(), workers.c.created_at.desc(), workers.c.worker_id.desc())
    )
    return connection.execute(query.limit(1)).mappings().first()
