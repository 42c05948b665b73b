"""Claims: each task has at most one open claim, which its worker ends under the claim's token or which is revoked."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import Connection, RowMapping, and_, select

from interlock.db.core import requests
from interlock.db.fast_path import Row, rows
from interlock.db.orchestration import claim_triggers, itself
from interlock.db.schema import in_schema
from interlock.db.statements import first, queries
from interlock.db.tables.orchestration import task_claims

sql = queries(__file__)

TRIES = 16  # each further one means that another worker's commit came between; then the queue is busy enough

_HELD = in_schema("""
SELECT c.worker_id, c.claim_id, c.task_id, i.entity_id, i.project, i.current_state, c.claimed_at
  FROM interlock.task_claims c JOIN interlock.workflow_instances i ON i.id = c.task_id
 WHERE c.worker_id = ANY(%(ids)s::uuid[]) AND c.ended_at IS NULL AND c.revoked_at IS NULL
 ORDER BY c.claim_id
""")
_LOCK = in_schema("""
SELECT interlock.as_itself(worker_id, %(secret)s, %(deed)s)
  FROM interlock.workers WHERE worker_id = %(worker_id)s FOR NO KEY UPDATE
""")
# Workers are locked before their claims, and in the order of their ids, everywhere, to avoid deadlocks.
_LOCK_WORKERS = in_schema("""
SELECT worker_id FROM interlock.workers WHERE worker_id = ANY (%(ids)s) ORDER BY worker_id FOR NO KEY UPDATE
""")
_LOCK_CLAIMS = in_schema("""
SELECT claim_id FROM interlock.task_claims
 WHERE worker_id = ANY (%(ids)s) AND token = COALESCE(%(token)s::bigint, token) AND ended_at IS NULL FOR NO KEY UPDATE
""")
_QUEUED = in_schema("""
SELECT q.task_id FROM interlock.runs r
 CROSS JOIN LATERAL (SELECT t.task_id, t.kind FROM interlock.tasks t
                      WHERE t.run_id = r.run_id AND t.state = 'queued' LIMIT %(limit)s) q
 WHERE r.state = 'running' AND q.kind = 'agent'
 LIMIT %(limit)s
""")
_REVOKED = in_schema("""
SELECT claim_id, worker_id FROM interlock.task_claims
 WHERE run_id = %(run_id)s AND ended_at IS NULL AND revoked_at IS NOT NULL
""")


def queued_for_agents(connection: Connection, *, limit: int) -> set[UUID]:
    """Queued tasks of running runs that agents take; at most `limit` of them."""
    return {row[0] for row in connection.exec_driver_sql(_QUEUED, {"limit": limit})}


def claim(connection: Connection, worker_id: UUID, secret: str) -> Row | None:
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
        found = first(connection, sql("claim_task"), {"worker_id": worker_id, "secret": secret})
        if found is None:
            return None
        if found["token"] is not None:
            return first(connection, sql("open_claims"), {"worker_id": worker_id, "claim_id": found["claim_id"]})
    return None


def claimed(connection: Connection, worker_id: UUID, secret: str) -> list[Row]:
    """The claims that a worker holds, with their tokens, the oldest first; rows as `claim` returns.

    Raises:
        NotYours: the secret is not the worker's.
    """
    itself.require(connection, worker_id, secret, "see the claims")
    return rows(connection, sql("open_claims"), {"worker_id": worker_id, "claim_id": None})


def end(connection: Connection, worker_id: UUID, secret: str, token: int) -> Row | None:
    """End a worker's claim, even a revoked one, and lower the worker's load. `secret`: of its registration.

    Returns:
        claim_id, token, task_id, entity_id, current_state and version of its task; worker_id, worker, `revoked`,
        `was_full` and `drained` (a draining worker's last claim), drained_by, drain_reason and `by_operator`: who asked
        for it is an operator. None if the worker has no such open claim.

    Raises:
        NotYours: the secret is not the worker's.
    """
    if not _lock(connection, worker_id, secret, "report"):
        return None
    return next(iter(_ended(connection, _open(connection, [worker_id], token), taken=False)), None)


def take_away(connection: Connection, worker_ids: Iterable[UUID]) -> list[Row]:
    """End all claims of workers that will not report on them; rows as `end` returns.

    The tasks of those not `revoked` are still to be given back (`claim_triggers.task_returned`), in the same
    transaction: afterwards the claim proves nothing.
    """
    ids = list(worker_ids)
    connection.exec_driver_sql(_LOCK_WORKERS, {"ids": ids})
    return _ended(connection, _open(connection, ids), taken=True)


def end_revoked(connection: Connection, run_id: UUID) -> list[Row]:
    """End the claims of a run that were revoked, which frees their workers for other tasks; rows as `end` returns."""
    found = rows(connection, _REVOKED, {"run_id": run_id})
    if not found:
        return []
    connection.exec_driver_sql(_LOCK_WORKERS, {"ids": [row["worker_id"] for row in found]})
    return _ended(connection, [row["claim_id"] for row in found], taken=True)


def any_revoked(connection: Connection, run_id: UUID) -> bool:
    """Whether claims of a run were revoked that nobody has taken note of (`end_revoked`)."""
    return first(connection, _REVOKED, {"run_id": run_id}) is not None


class OwnClaim(NamedTuple):
    """A claim of a worker, which may have ended; `held`: it is valid."""

    claim_id: int
    task_id: UUID
    run_id: UUID
    held: bool


def own(connection: Connection, worker_id: UUID, token: int) -> OwnClaim | None:
    """The claim that a worker made under a token, even if it has ended; None if it had no such claim."""
    c = task_claims.c
    held = and_(c.revoked_at.is_(None), c.ended_at.is_(None))
    query = select(c.claim_id, c.task_id, c.run_id, held).where(c.token == token, c.worker_id == worker_id)
    found = connection.execute(query).first()
    return OwnClaim(*found) if found else None


def is_held(connection: Connection, token: int) -> bool:
    """Whether a claim is still valid. It is not once its task left `running` without its worker."""
    query = select(task_claims.c.token).where(
        task_claims.c.token == token, task_claims.c.revoked_at.is_(None), task_claims.c.ended_at.is_(None)
    )
    return connection.execute(query).first() is not None


def is_reported(connection: Connection, worker_id: UUID, token: int) -> bool:
    """Whether a report by this worker under this token was accepted before, so that repeating it is harmless."""
    if (found := own(connection, worker_id, token)) is None:
        return False
    request_id = claim_triggers.report_id(found.claim_id)
    return request_id in requests.by_ids(connection, [request_id])


def held(connection: Connection, worker_ids: Iterable[UUID]) -> Sequence[RowMapping]:
    """(worker_id, claim_id, task_id, entity_id, project, current_state, claimed_at) of workers' valid claims, oldest
    first: no token, for anybody.
    """
    return connection.exec_driver_sql(_HELD, {"ids": list(worker_ids)}).mappings().all()


def _open(connection: Connection, worker_ids: Sequence[UUID], token: int | None = None) -> list[int]:
    """Lock the claims of workers that have not ended: the one of a token, or all."""
    return [row["claim_id"] for row in rows(connection, _LOCK_CLAIMS, {"ids": worker_ids, "token": token})]


def _ended(connection: Connection, claim_ids: Sequence[int], *, taken: bool) -> list[Row]:
    return rows(connection, sql("end_claims"), {"ids": claim_ids, "taken": taken}) if claim_ids else []


def _lock(connection: Connection, worker_id: UUID, secret: str, deed: str) -> bool:
    with itself.refusing(worker_id, secret, deed):
        return first(connection, _LOCK, {"worker_id": worker_id, "secret": secret, "deed": deed}) is not None
