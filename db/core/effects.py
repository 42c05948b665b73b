"""Effects: intents to touch the world, claimed under a lease, finished under its fencing token."""

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, RowMapping, Text, cast, func, select, update
from sqlalchemy.exc import IntegrityError

from interlock.db.connection import sql
from interlock.db.schema import functions
from interlock.db.statements import Rows, among, returning
from interlock.db.tables.core import effects, instances
from interlock.workflows.errors import StaleLease

UNIQUE_VIOLATION = "23505"
SOFTWARE_FAULT = 70  # sysexits.h, EX_SOFTWARE: the exit code of what could not be run at all


def intend(connection: Connection, wanted: Rows) -> Sequence[RowMapping]:
    """Write effects to be run; (id, name) of each."""
    return returning(connection, "effects", wanted)


def claim(connection: Connection, effect_id: UUID, *, holder: str, lease_seconds: float) -> RowMapping | None:
    """Take the lease of an effect that is due, in a transaction of its own.

    Returns:
        The effect, or None where it is not there, not due, somebody else's, or shares its key with one that is leased.
    """
    given = {"id": effect_id, "holder": holder, "lease_seconds": lease_seconds}
    try:
        return connection.exec_driver_sql(sql("claim_effect"), given).mappings().first()
    except IntegrityError as error:
        if getattr(error.orig, "sqlstate", None) == UNIQUE_VIOLATION:
            return None  # another with this key was quicker
        raise


def renew(connection: Connection, claimed: RowMapping, lease_seconds: float) -> None:
    """Hold a lease for `lease_seconds` from now.

    Raises:
        StaleLease: it ran out or passed to another worker: stop.
    """
    given = {"id": claimed["id"], "token": claimed["token"], "lease_seconds": lease_seconds}
    if connection.exec_driver_sql(sql("renew_effect"), given).rowcount == 0:
        raise _stale(claimed)


def next_of(connection: Connection, exclusive: str | None) -> Sequence[RowMapping]:
    """(id, name) of the effect whose turn it is once a key is free; none where there is no key, or nobody waits."""
    if exclusive is None:
        return []
    return connection.exec_driver_sql(sql("next_effect"), {"exclusive": exclusive}).mappings().all()


def finish(
    connection: Connection,
    claimed: RowMapping,
    *,
    status: str,
    error: str | None = None,
    result: Mapping[str, Any] | None = None,
    delay_seconds: float = 0.0,
    uncounted: bool = False,
) -> None:
    """End a claim: `done`, `dead`, or back to `pending` after a delay; `uncounted` is no attempt.

    Raises:
        StaleLease: the lease ran out or passed to another worker; nothing is written.
    """
    given = {
        "id": claimed["id"],
        "token": claimed["token"],
        "status": status,
        "error": error,
        "result": None if result is None else json.dumps(result),
        "delay_seconds": delay_seconds,
        "uncounted": uncounted,
    }
    if connection.exec_driver_sql(sql("finish_effect"), given).rowcount == 0:
        raise _stale(claimed)


def _stale(claimed: RowMapping) -> StaleLease:
    return StaleLease(f"effect {claimed['id']} is no longer held under token {claimed['token']}")


def telling(
    effect: RowMapping,
    trigger: str,
    *,
    result: Mapping[str, Any] | None = None,
    error: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    trace: str | None = None,
) -> dict[str, Any]:
    """The request that tells an effect's outcome to its instance, for `requests.accept` in the commit that ends it.

    It is bound to the version that the effect belongs to: an instance that has moved on is not told.

    Args:
        effect: the claimed row.
        trigger: what to fire.
        result: what the effect returned.
        error: why it is dead; guards that ask for a reason or an exit code get them from it.
        metadata: the trigger's metadata, where the effect chose it itself.
        trace: the traceparent of what tells it.
    """
    request_id = f"{effect['id']}:{effect['token']}"
    return {
        "request_id": request_id,
        "fingerprint": request_id.encode().hex(),
        "workflow_id": effect["workflow_id"],
        "trigger": trigger,
        "triggered_by": "effect",
        "origin": "follow_up",
        "bound_version": effect["version"],
        "metadata": {"effect": effect["name"]} | (_told(result, error) if metadata is None else dict(metadata)),
        "trace": trace,
    }


def _told(result: Mapping[str, Any] | None, error: str | None) -> dict[str, Any]:
    failed = {} if error is None else {"reason": error, "exit_code": SOFTWARE_FAULT}
    return {"result": result, "error": error} | failed


def expire_leases(connection: Connection, *, max_attempts: int, limit: int) -> Sequence[RowMapping]:
    """Take back the effects of silent workers; those pending again or, out of attempts, dead."""
    given = {"max_attempts": max_attempts, "limit": limit}
    return connection.exec_driver_sql(sql("expire_leases"), given).mappings().all()


def dead(connection: Connection, *, limit: int) -> Sequence[RowMapping]:
    """Effects whose attempts are used up, newest first, each with its instance's name."""
    query = (
        select(effects, instances.c.workflow_type, instances.c.entity_id)
        .join(instances, instances.c.id == effects.c.workflow_id)
        .where(effects.c.status == "dead")
        .order_by(effects.c.finished_at.desc())
        .limit(limit)
    )
    return connection.execute(query).mappings().all()


def redrive(
    connection: Connection, effect_ids: Sequence[UUID] | None = None, *, by: str = "system"
) -> Sequence[RowMapping]:
    """Give dead effects a new set of attempts: all of them, or those named; (id, name) of those revived.

    Their payload says who did it: `redriven_by`. One whose payload is not within bounds stays dead.
    """
    query = (
        update(effects)
        .where(effects.c.status == "dead", functions.bounded(effects.c.payload))
        .values(
            status="pending",
            attempts=0,
            error=None,
            finished_at=None,
            not_before=func.now(),
            payload=effects.c.payload.op("||")(func.jsonb_build_object("redriven_by", cast(by, Text))),
        )
        .returning(effects.c.id, effects.c.name)
    )
    if effect_ids is not None:
        query = query.where(among(effects.c.id, effect_ids))
    return connection.execute(query).mappings().all()


def due(connection: Connection, *, limit: int) -> Sequence[RowMapping]:
    """(id, name) of effects that could be claimed now, oldest first."""
    return connection.exec_driver_sql(sql("due_effects"), {"limit": limit}).mappings().all()


def of_instance(connection: Connection, instance_id: UUID) -> Sequence[RowMapping]:
    """The effects an instance's moves have asked for, in order."""
    query = select(effects).where(effects.c.workflow_id == instance_id).order_by(effects.c.created_at, effects.c.id)
    return connection.execute(query).mappings().all()


def count_by_status(connection: Connection) -> dict[str, int]:
    """Status -> how many effects have it."""
    return {row[0]: row[1] for row in connection.execute(select(effects.c.status, func.count()).group_by("status"))}


def prune(connection: Connection, *, keep_days: float, limit: int) -> int:
    """Delete effects done more than `keep_days` ago."""
    old: Any = (
        select(effects.c.id)
        .where(
            effects.c.finished_at < func.now() - timedelta(days=keep_days),
            effects.c.status == "done",
        )
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    return connection.execute(effects.delete().where(effects.c.id.in_(old))).rowcount
