"""Claims: a task is held by one worker at most, who ends its claim under its token, or is relieved of it."""

from collections.abc import Iterable, Sequence
from uuid import UUID

from sqlalchemy import Connection, RowMapping, literal, select

from interlock.db.connection import sql
from interlock.db.core import requests
from interlock.db.orchestration import claim_triggers
from interlock.db.tables import task_claims, workers

TRIES = 16  # each further one means that another worker's commit came between; then the queue is busy enough


def claim(connection: Connection, worker_id: UUID) -> RowMapping | None:
    """Claim the next fitting task for a worker that is idle and has room, by fairness between runs.

    Args:
        connection: the claim's transaction; what it leads to (`crew_requests.claimed`) is accepted in the same one.
        worker_id: whose capabilities, affinity and load decide (WORKER-3).

    Returns:
        token, task_id, run_id, workstream_id, entity_id, project_id, kind, version, context, command,
        timeout_sec, retry_count, required_capabilities; worker_id, worker (its name), capabilities, and `full`: it can
        take no more. None where the worker may not take anything, or nothing fits.
    """
    if not _lock(connection, worker_id):
        return None
    for _ in range(TRIES):
        found = connection.exec_driver_sql(sql("claim_task"), {"worker_id": worker_id}).mappings().first()
        if found is None:
            return None
        if found["token"] is not None:
            given = {"worker_id": worker_id, "token": found["token"], "task_id": found["task_id"]}
            return connection.exec_driver_sql(sql("load_worker"), given).mappings().one()
    return None


def end(connection: Connection, worker_id: UUID, token: int) -> RowMapping | None:
    """End a worker's claim and lower its load, also of a claim that was revoked.

    Returns:
        token, task_id, entity_id, current_state and version of its task; worker_id, worker, `revoked`, `was_full` and
        `drained` (it asked to be shut down, and this was its last task). None where the worker has no such claim, or
        ended it before.
    """
    # The worker before the claim, everywhere: two that want both must not each hold one.
    if not _lock(connection, worker_id):
        return None
    query = select(task_claims.c.token).where(task_claims.c.token == token, task_claims.c.worker_id == worker_id)
    if connection.execute(query.with_for_update()).first() is None:
        return None
    return connection.exec_driver_sql(sql("end_claim"), {"token": token}).mappings().first()


def task_of(connection: Connection, worker_id: UUID, token: int) -> UUID | None:
    """The task that a worker claimed under a token, whatever became of the claim; None where it has no such claim."""
    query = select(task_claims.c.task_id).where(task_claims.c.token == token, task_claims.c.worker_id == worker_id)
    return connection.execute(query).scalar()


def is_held(connection: Connection, token: int) -> bool:
    """Does this claim still count? It does not once its task left `running` without its worker."""
    query = select(task_claims.c.token).where(
        task_claims.c.token == token, task_claims.c.revoked_at.is_(None), task_claims.c.ended_at.is_(None)
    )
    return connection.execute(query).first() is not None


def is_reported(connection: Connection, worker_id: UUID, token: int) -> bool:
    """Was this worker's report under this token taken before? Then saying it again is harmless."""
    request_id = claim_triggers.report_id(token)
    known = task_of(connection, worker_id, token) is not None
    return known and request_id in requests.by_ids(connection, [request_id])


def held(connection: Connection, worker_ids: Iterable[UUID]) -> Sequence[RowMapping]:
    """(token, task_id, entity_id, current_state, version, worker_id, worker) of the claims of workers that count."""
    return connection.exec_driver_sql(sql("held_claims"), {"ids": list(worker_ids)}).mappings().all()


def retire(connection: Connection, worker_ids: Iterable[UUID]) -> None:
    """End every claim of workers that will never report again, and lower their loads to nothing."""
    connection.exec_driver_sql(sql("retire_workers"), {"ids": sorted(worker_ids)})


def _lock(connection: Connection, worker_id: UUID) -> bool:
    query = select(literal(1)).where(workers.c.worker_id == worker_id).with_for_update(key_share=True)
    return connection.execute(query).first() is not None
