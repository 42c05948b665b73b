"""Effects: actions on the outside world, claimed under a lease and finished under its fencing token."""

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, RowMapping, cast, func, select, update
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.exc import IntegrityError

from interlock.db.core.instances import with_names
from interlock.db.core.request_rows import internal, of_lease, own_id
from interlock.db.schema import in_schema
from interlock.db.statements import Rows, among, functions, queries, returning
from interlock.db.tables.core import effects
from interlock.workflows.errors import StaleLease

sql = queries(__file__)

UNIQUE_VIOLATION = "23505"
SOFTWARE_FAULT = 70  # sysexits.h, EX_SOFTWARE: the exit code of a command that could not be run at all

# Take the lease of an effect that is due; the token grows with each lease, so that an older holder can be told apart.
# While another with the same key is leased, it is not: of two that ask at once the unique index refuses the second.
_CLAIM = in_schema("""
UPDATE interlock.effects e
   SET status = 'leased', token = token + 1, attempts = attempts + 1, leased_by = %(holder)s,
       lease_until = now() + make_interval(secs => %(lease_seconds)s)
 WHERE id = %(id)s AND status = 'pending' AND not_before <= now()
   AND NOT EXISTS (SELECT FROM interlock.effects o WHERE o.exclusive = e.exclusive AND o.status = 'leased')
RETURNING id, workflow_id, version, name, payload, done_trigger, failed_trigger, exclusive, token, attempts, trace,
       extract(epoch FROM now() - created_at)::float8 AS age_seconds
""")
# Hold an effect's lease for longer, under the token it was claimed with. Zero rows: it ran out, or passed to another.
_RENEW = in_schema("""
UPDATE interlock.effects SET lease_until = now() + make_interval(secs => %(lease_seconds)s)
 WHERE id = %(id)s AND status = 'leased' AND token = %(token)s AND lease_until > now()
""")
# The effect that waits longest for a key that has just become free.
_NEXT = in_schema("""
SELECT id, name FROM interlock.effects
 WHERE exclusive = %(exclusive)s AND status = 'pending' AND not_before <= now()
 ORDER BY not_before, id LIMIT 1
""")
# Finish (or give back) an effect, under the lease it was claimed with. A lease that ran out, or that another worker
# took since, finishes nothing: zero rows.
_FINISH = in_schema("""
UPDATE interlock.effects
   SET status = %(status)s::text, lease_until = NULL, leased_by = NULL, error = %(error)s::text,
       result = %(result)s::jsonb, not_before = now() + make_interval(secs => %(delay_seconds)s),
       attempts = attempts - CASE WHEN %(uncounted)s::boolean THEN 1 ELSE 0 END,
       finished_at = CASE WHEN %(status)s::text IN ('done', 'dead') THEN now() END
 WHERE id = %(id)s AND status = 'leased' AND token = %(token)s AND lease_until > now()
RETURNING version
""")
# Effects that could be claimed now, oldest first: of those that share a key only the oldest, and none while one of
# them is leased.
_DUE = in_schema("""
SELECT e.id, e.name
  FROM interlock.effects e
 WHERE e.status = 'pending' AND e.not_before <= now()
   AND NOT EXISTS (SELECT FROM interlock.effects o WHERE o.exclusive = e.exclusive AND o.status = 'leased')
   AND NOT EXISTS (SELECT FROM interlock.effects o
                    WHERE o.exclusive = e.exclusive AND o.status = 'pending' AND o.not_before <= now()
                      AND (o.not_before, o.id) < (e.not_before, e.id))
 ORDER BY e.not_before LIMIT %(limit)s
""")


def intend(connection: Connection, rows: Rows) -> Sequence[RowMapping]:
    """Insert effects to be run; returns (id, name) of each."""
    return returning(connection, sql("effects"), rows)


def claim(connection: Connection, effect_id: UUID, *, holder: str, lease_seconds: float) -> RowMapping | None:
    """Take the lease of a due effect, in a separate transaction.

    Returns:
        The effect; None if it is missing, not due, leased, or has the same exclusive key as a leased effect.
    """
    parameters = {"id": effect_id, "holder": holder, "lease_seconds": lease_seconds}
    try:
        return connection.exec_driver_sql(_CLAIM, parameters).mappings().first()
    except IntegrityError as error:
        if getattr(error.orig, "sqlstate", None) == UNIQUE_VIOLATION:
            return None  # another effect with this key was leased first
        raise


def renew(connection: Connection, claimed: RowMapping, lease_seconds: float) -> None:
    """Extend a lease to `lease_seconds` from now.

    Raises:
        StaleLease: it expired or passed to another worker; stop the work.
    """
    parameters = {"id": claimed["id"], "token": claimed["token"], "lease_seconds": lease_seconds}
    if connection.exec_driver_sql(_RENEW, parameters).rowcount == 0:
        raise _stale(claimed)


def next_of(connection: Connection, exclusive: str | None) -> Sequence[RowMapping]:
    """(id, name) of the effect to run next under a freed exclusive key; empty without a key or a waiting effect."""
    if exclusive is None:
        return []
    return connection.exec_driver_sql(_NEXT, {"exclusive": exclusive}).mappings().all()


def finish(
    connection: Connection,
    claimed: RowMapping,
    *,
    status: str,
    error: str | None = None,
    result: Mapping[str, Any] | None = None,
    delay_seconds: float = 0.0,
    uncounted: bool = False,
) -> int:
    """End a claim: `done`, `dead`, or back to `pending` after a delay; `uncounted`: do not count the attempt.

    Returns:
        The version of its instance that a report is for.

    Raises:
        StaleLease: the lease expired or passed to another worker; nothing is written.
    """
    parameters = {
        "id": claimed["id"],
        "token": claimed["token"],
        "status": status,
        "error": error,
        "result": None if result is None else json.dumps(result),
        "delay_seconds": delay_seconds,
        "uncounted": uncounted,
    }
    version = connection.exec_driver_sql(_FINISH, parameters).scalar()
    if version is None:
        raise _stale(claimed)
    return int(version)


def _stale(claimed: RowMapping) -> StaleLease:
    return StaleLease(f"effect {claimed['id']} is no longer held under token {claimed['token']}")


def outcome_request(
    effect: RowMapping,
    trigger: str,
    *,
    version: int | None = None,
    result: Mapping[str, Any] | None = None,
    error: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    trace: str | None = None,
) -> dict[str, Any]:
    """The request that reports an effect's outcome to its instance, for `requests.accept` in the commit that ends it.

    It is bound to the version of the instance that the effect is for: if the instance moved since, it is superseded.

    Args:
        effect: the claimed row, with that version.
        version: that version, if the effect itself has moved its instance since.
        trigger: the trigger to fire.
        result: what the effect returned.
        error: why it is dead; it supplies the reason and exit code that guards require.
        metadata: the trigger's metadata, if the effect chose it.
        trace: the traceparent of the reporting span.
    """
    return internal(
        own_id(effect["id"], effect["token"]),
        effect["workflow_id"],
        trigger,
        by="effect",
        right=of_lease(effect["id"], effect["token"]),
        version=effect["version"] if version is None else version,
        metadata={"effect": effect["name"]}
        | (_outcome_metadata(result, error) if metadata is None else dict(metadata)),
        trace=trace,
    )


def _outcome_metadata(result: Mapping[str, Any] | None, error: str | None) -> dict[str, Any]:
    failed = {} if error is None else {"reason": error, "exit_code": SOFTWARE_FAULT}
    return {"result": result, "error": error} | failed


def holders(connection: Connection, node: str) -> list[str]:
    """Who holds leases, of the processes of a node: the `holder` of each."""
    query = select(effects.c.leased_by).where(
        effects.c.status == "leased", effects.c.leased_by.startswith(f"{node}:", autoescape=True)
    )
    return list(connection.execute(query).scalars())


def expire_leases(
    connection: Connection, *, max_attempts: int, limit: int, gone: Collection[str] = ()
) -> Sequence[RowMapping]:
    """Take back effects with expired leases; returns them, pending again or, without attempts left, dead.

    Args:
        connection: the caller's transaction.
        max_attempts: after so many an effect is dead.
        limit: of how many.
        gone: holders that are known to have died: their leases are taken back before they expire.
    """
    parameters = {"max_attempts": max_attempts, "limit": limit, "gone": list(gone)}
    return connection.exec_driver_sql(sql("expire_leases"), parameters).mappings().all()


def dead(connection: Connection, *, project: str | None = None, limit: int) -> Sequence[RowMapping]:
    """Effects whose attempts are used up, newest first, each with its instance's name; of one project if given."""
    query = (
        with_names(effects, project)
        .where(effects.c.status == "dead")
        .order_by(effects.c.finished_at.desc())
        .limit(limit)
    )
    return connection.execute(query).mappings().all()


def redrive(
    connection: Connection, effect_ids: Sequence[UUID] | None = None, *, by: str = "system", reason: str = ""
) -> Sequence[RowMapping]:
    """Give dead effects (all, or those named) a new set of attempts; returns (id, name) of those revived.

    Their payload says who did it and why (`redriven_by`, `redriven_because`). One whose payload exceeds the
    limits stays dead.
    """
    facts = {"redriven_by": by} | ({"redriven_because": reason} if reason else {})
    query = (
        update(effects)
        .where(effects.c.status == "dead", functions.bounded(effects.c.payload))
        .values(
            status="pending",
            attempts=0,
            error=None,
            finished_at=None,
            not_before=func.now(),
            payload=effects.c.payload.op("||")(cast(facts, JSONB)),
        )
        .returning(effects.c.id, effects.c.name)
    )
    if effect_ids is not None:
        query = query.where(among(effects.c.id, effect_ids))
    return connection.execute(query).mappings().all()


def due(connection: Connection, *, limit: int) -> Sequence[RowMapping]:
    """(id, name) of effects that could be claimed now, oldest first."""
    return connection.exec_driver_sql(_DUE, {"limit": limit}).mappings().all()


def of_instance(connection: Connection, instance_id: UUID) -> Sequence[RowMapping]:
    """The effects that an instance's moves requested, in order."""
    query = select(effects).where(effects.c.workflow_id == instance_id).order_by(effects.c.created_at, effects.c.id)
    return connection.execute(query).mappings().all()


def count_by_status(connection: Connection) -> dict[str, int]:
    """Status -> number of effects."""
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
