"""Claims: each task has at most one open claim, which its worker ends under the claim's token or which is revoked."""

from collections.abc import Iterable, Sequence
from uuid import UUID

from sqlalchemy import Connection, RowMapping, select

from interlock.db.core import requests
from interlock.db.orchestration import claim_triggers, itself
from interlock.db.schema import in_schema
from interlock.db.statements import queries
from interlock.db.tables.orchestration import task_claims

sql = queries(__file__)

TRIES = 16  # each further one means that another worker's commit came between; then the queue is busy enough

# What workers hold and have not been relieved of, with where each task stands. Locked: once a claim is revoked, what is
# fired by its right is refused.
_HELD = in_schema("""
SELECT c.claim_id, c.token, c.task_id, i.entity_id, i.current_state, i.version, w.worker_id, w.name AS worker
  FROM interlock.task_claims c JOIN interlock.workers w USING (worker_id)
  JOIN interlock.workflow_instances i ON i.id = c.task_id
 WHERE c.worker_id = ANY (%(ids)s) AND c.ended_at IS NULL AND c.revoked_at IS NULL
   FOR NO KEY UPDATE OF c
""")
_LOCK = in_schema("""
SELECT interlock.as_itself(worker_id, %(secret)s, %(deed)s)
  FROM interlock.workers WHERE worker_id = %(worker_id)s FOR NO KEY UPDATE
""")
# Workers that will never report again hold nothing any more (WORKER-12).
_RETIRE = in_schema("""
WITH freed AS (
    UPDATE interlock.task_claims SET revoked_at = COALESCE(revoked_at, now()), ended_at = now()
     WHERE worker_id = ANY (%(ids)s) AND ended_at IS NULL
)
UPDATE interlock.workers SET current_load = 0 WHERE worker_id = ANY (%(ids)s) AND current_load > 0
""")


def claim(connection: Connection, worker_id: UUID, secret: str) -> RowMapping | None:
    """Claim the next fitting task for an idle worker with room, fairly between runs; maybe its tool's trial with it.

    Args:
        connection: the claim's transaction; the triggers that follow (`claim_triggers.claimed`) belong in the same one.
        worker_id: the worker; its capabilities, affinity and load decide (WORKER-3).
        secret: of its registration.

    Returns:
        claim_id, token, task_id, run_id, workstream_id, entity_id, project, kind, version, context, command,
        timeout_sec, retry_count, required_capabilities; worker_id, worker (its name), capabilities, and `full`: the
        worker can take no more. None if the worker may not claim, or no task fits.

    Raises:
        NotYours: the secret is not the worker's.
    """
    if not _lock(connection, worker_id, secret, "claim"):
        return None
    for _ in range(TRIES):
        found = (
            connection.exec_driver_sql(sql("claim_task"), {"worker_id": worker_id, "secret": secret}).mappings().first()
        )
        if found is None:
            return None
        if found["token"] is not None:
            parameters = {"worker_id": worker_id, **found}
            return connection.exec_driver_sql(sql("load_worker"), parameters).mappings().one()
    return None


def end(connection: Connection, worker_id: UUID, secret: str, token: int) -> RowMapping | None:
    """End a worker's claim, even a revoked one, and lower the worker's load. `secret`: of its registration.

    Returns:
        claim_id, token, task_id, entity_id, current_state and version of its task; worker_id, worker, `revoked`,
        `was_full` and `drained` (a draining worker's last claim). None if the worker has no such open claim.

    Raises:
        NotYours: the secret is not the worker's.
    """
    # Lock the worker before the claim, everywhere, to avoid deadlocks.
    if not _lock(connection, worker_id, secret, "report"):
        return None
    query = select(task_claims.c.token).where(task_claims.c.token == token, task_claims.c.worker_id == worker_id)
    if connection.execute(query.with_for_update()).first() is None:
        return None
    return connection.exec_driver_sql(sql("end_claim"), {"token": token}).mappings().first()


def task_of(connection: Connection, worker_id: UUID, token: int) -> UUID | None:
    """The task that a worker claimed under a token, even if the claim has ended; None if it had no such claim."""
    query = select(task_claims.c.task_id).where(task_claims.c.token == token, task_claims.c.worker_id == worker_id)
    return connection.execute(query).scalar()


def is_held(connection: Connection, token: int) -> bool:
    """Whether a claim is still valid. It is not once its task left `running` without its worker."""
    query = select(task_claims.c.token).where(
        task_claims.c.token == token, task_claims.c.revoked_at.is_(None), task_claims.c.ended_at.is_(None)
    )
    return connection.execute(query).first() is not None


def is_reported(connection: Connection, worker_id: UUID, token: int) -> bool:
    """Whether a report by this worker under this token was accepted before, so that repeating it is harmless."""
    query = select(task_claims.c.claim_id).where(task_claims.c.token == token, task_claims.c.worker_id == worker_id)
    if (claim_id := connection.execute(query).scalar()) is None:
        return False
    request_id = claim_triggers.report_id(claim_id)
    return request_id in requests.by_ids(connection, [request_id])


def held(connection: Connection, worker_ids: Iterable[UUID]) -> Sequence[RowMapping]:
    """(claim_id, token, task_id, entity_id, current_state, version, worker_id, worker) of the workers' valid claims."""
    return connection.exec_driver_sql(_HELD, {"ids": list(worker_ids)}).mappings().all()


def retire(connection: Connection, worker_ids: Iterable[UUID]) -> None:
    """End all claims of workers that will never report again, and set their loads to 0."""
    connection.exec_driver_sql(_RETIRE, {"ids": sorted(worker_ids)})


def _lock(connection: Connection, worker_id: UUID, secret: str, deed: str) -> bool:
    with itself.refusing(worker_id, secret, deed):
        given = {"worker_id": worker_id, "secret": secret, "deed": deed}
        return connection.exec_driver_sql(_LOCK, given).first() is not None
