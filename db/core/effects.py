"""Effects: actions on the outside world, claimed under a lease and finished under its fencing token."""

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypedDict, cast
from uuid import UUID

from sqlalchemy import Connection, RowMapping, false, func, select
from sqlalchemy.exc import IntegrityError

from interlock.db.core.instances import NAMED, with_names
from interlock.db.core.request_rows import internal, of_lease, own_id
from interlock.db.core.revival import revival
from interlock.db.fast_path import Row, rows
from interlock.db.schema import in_schema
from interlock.db.statements import Rows, among, among_found, functions, matching, queries, returning
from interlock.db.tables.core import effects, instances
from interlock.workflows.errors import StaleLease

sql = queries(__file__)

UNIQUE_VIOLATION = "23505"
SOFTWARE_FAULT = 70  # sysexits.h, EX_SOFTWARE: the exit code of a command that could not be run at all

# Hold an effect's lease for longer, under the token it was claimed with. Zero rows: it ran out, or passed to another.
_RENEW = in_schema("""
UPDATE interlock.effects e
   SET lease_until = now() + make_interval(secs => %(lease_seconds)s),
       progress = COALESCE(%(progress)s::jsonb, progress)
 WHERE id = %(id)s AND status = 'leased' AND token = %(token)s AND lease_until > now()
RETURNING (SELECT i.version FROM interlock.workflow_instances i WHERE i.id = e.workflow_id) > e.version AS superseded
""")
# What an effect that ends makes room for: of those that share its exclusive key the one that waits longest, and the one
# of the same type or limit key, if limits are in force.
_NEXT = in_schema("""
WITH own AS MATERIALIZED (
    SELECT i.project, i.workflow_type, e.limit_key
      FROM interlock.effects e JOIN interlock.workflow_instances i ON i.id = e.workflow_id
     WHERE e.id = %(id)s AND %(limited)s
), spent AS MATERIALIZED (
    SELECT f.named FROM interlock.full_limits() f JOIN own USING (project) WHERE EXISTS (SELECT FROM own)
)
(SELECT d.id, d.name, d.queue, d.entity FROM interlock.due_effects d WHERE d.exclusive = %(exclusive)s::text LIMIT 1)
UNION
(SELECT d.id, d.name, d.queue, d.entity FROM own JOIN interlock.due_effects d USING (project)
  WHERE (d.workflow_type = own.workflow_type OR d.limit_key = own.limit_key)
    AND NOT EXISTS (SELECT FROM spent WHERE interlock.held_back(named, d.workflow_type, NULL, d.limit_key))
  ORDER BY d.not_before, d.id LIMIT 1)
""")
# Finish (or give back) an effect, under the lease it was claimed with. A lease that ran out, or that another worker
# took since, finishes nothing: zero rows.
_FINISH = in_schema("""
UPDATE interlock.effects
   SET status = %(status)s::text, lease_until = NULL, leased_by = NULL, error = %(error)s::text,
       result = COALESCE(%(result)s::jsonb, result), not_before = now() + make_interval(secs => %(delay_seconds)s),
       attempts = attempts - CASE WHEN %(uncounted)s::boolean THEN 1 ELSE 0 END,
       finished_at = CASE WHEN %(status)s::text IN ('done', 'dead', 'cancelled') THEN now() END
 WHERE id = %(id)s AND status = 'leased' AND token = %(token)s AND lease_until > now()
RETURNING version
""")
# Effects that could be claimed now, oldest first. Without limits, `startable_effects` is not called.
_DUE = in_schema("""
SELECT d.id, d.name, d.queue, d.token, d.entity FROM interlock.due_effects d
 WHERE CASE WHEN EXISTS (SELECT FROM interlock.limits) THEN d.id IN (SELECT interlock.startable_effects()) ELSE true END
 ORDER BY d.not_before LIMIT %(limit)s
""")

_AWAITED = functions.awaited(effects.table_valued())


class ClaimedEffect(TypedDict):
    """An effect under a lease, with what its function needs to know of its instance and of the move that asked for it.

    Attributes:
        id: of the effect, the same for each attempt.
        workflow_id, version: the instance, and its version after that move.
        name, queue: which effect, and where its wake-ups go.
        payload: what the move knows; `Unreadable` if it cannot be read.
        progress: what an earlier attempt said last.
        done_trigger, failed_trigger: what tells the instance the outcome; None: nothing does.
        exclusive: of effects with the same key only one is leased at a time; None: it has no key.
        token, attempts: the lease's fencing token; 1 for the first attempt.
        limited: whether there are limits, so that others may wait for its end.
        trace: the traceparent of that move.
        age_seconds: since that move.
        workflow_type, entity_id, project, definition_version, instance_version: of the instance now.
        from_state, metadata: the state before that move, and its trigger's data; None: the instance was created.
    """

    id: UUID
    workflow_id: UUID
    version: int
    name: str
    queue: str
    payload: Any
    progress: dict[str, Any] | None
    done_trigger: str | None
    failed_trigger: str | None
    exclusive: str | None
    token: int
    attempts: int
    limited: bool
    trace: str | None
    age_seconds: float
    workflow_type: str
    entity_id: str
    project: str
    definition_version: str
    instance_version: int
    from_state: str | None
    metadata: dict[str, Any] | None


def intend(connection: Connection, wanted: Rows) -> list[Row]:
    """Insert effects to be run; returns (id, name, queue, entity) of each."""
    return returning(connection, sql("effects"), wanted)


def claim(connection: Connection, effect_id: UUID, *, holder: str, lease_seconds: float) -> ClaimedEffect | None:
    """Take the lease of a due effect, in a separate transaction.

    Returns:
        The effect, with its instance's project and versions, and the state and metadata of the move that asked for it.
        `limited`: limits are in force. None if it is missing, not due, leased, has the same exclusive key as a leased
        effect, or a limit has no room for it.
    """
    parameters = {"id": effect_id, "holder": holder, "lease_seconds": lease_seconds}
    try:
        found = rows(connection, sql("claim"), parameters)
    except IntegrityError as error:
        if getattr(error.orig, "sqlstate", None) == UNIQUE_VIOLATION:
            return None  # another effect with this key was leased first
        raise
    return cast(ClaimedEffect, found[0]) if found else None


def renew(
    connection: Connection, claimed: ClaimedEffect, lease_seconds: float, progress: Mapping[str, Any] | None = None
) -> bool:
    """Extend a lease to `lease_seconds` from now.

    Args:
        connection: the caller's transaction.
        claimed: the effect, as `claim` returned it.
        lease_seconds: how long the lease lasts from now on.
        progress: what its function says of it; None: nothing new.

    Returns:
        Whether its instance has moved on since the move that asked for it.

    Raises:
        StaleLease: it expired or passed to another worker; stop the work.
    """
    parameters = {"id": claimed["id"], "token": claimed["token"], "lease_seconds": lease_seconds}
    row = connection.exec_driver_sql(
        _RENEW, parameters | {"progress": None if progress is None else json.dumps(progress)}
    ).first()
    if row is None:
        raise _stale(claimed)
    return bool(row[0])


def next_after(connection: Connection, claimed: ClaimedEffect) -> Sequence[RowMapping]:
    """(id, name, queue, entity) of the effects that can run now that this one has ended; empty if none waited."""
    if claimed["exclusive"] is None and not claimed["limited"]:
        return []
    given = {"id": claimed["id"], "exclusive": claimed["exclusive"], "limited": claimed["limited"]}
    return connection.exec_driver_sql(_NEXT, given).mappings().all()


def finish(
    connection: Connection,
    claimed: ClaimedEffect,
    *,
    status: str,
    error: str | None = None,
    result: Mapping[str, Any] | None = None,
    delay_seconds: float = 0.0,
    uncounted: bool = False,
) -> int:
    """End a claim: `done`, `dead`, `cancelled`, or back to `pending` after a delay; `uncounted`: it was no attempt.

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
    found = rows(connection, _FINISH, parameters)
    if not found:
        raise _stale(claimed)
    return int(found[0]["version"])


def _stale(claimed: ClaimedEffect) -> StaleLease:
    return StaleLease(f"effect {claimed['id']} is no longer held under token {claimed['token']}")


def outcome_request(
    effect: ClaimedEffect | RowMapping,
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
        metadata=(_outcome_metadata(result, error) if metadata is None else dict(metadata))
        | {"effect": effect["name"]},
        trace=trace,
    )


def _outcome_metadata(result: Mapping[str, Any] | None, error: str | None) -> dict[str, Any]:
    failed = {} if error is None else {"reason": error, "exit_code": SOFTWARE_FAULT}
    return {"result": result, "error": error} | failed


def holders(connection: Connection, node: str, namespace: str | None) -> list[str]:
    """Who holds leases, of the processes of a Celery node and of others in a pid namespace: the `holder` of each."""
    of_node = effects.c.leased_by.startswith(f"{node}:", autoescape=True)
    near = effects.c.leased_by.endswith(f":{namespace}", autoescape=True) if namespace else false()
    return list(
        connection.execute(select(effects.c.leased_by).where(effects.c.status == "leased", of_node | near)).scalars()
    )


def expire_leases(
    connection: Connection,
    *,
    max_attempts: int,
    own_attempts: Mapping[str, int],
    limit: int,
    gone: Collection[str] = (),
) -> Sequence[RowMapping]:
    """Take back effects with expired leases; returns them, pending again or, without attempts left, dead.

    Args:
        connection: the caller's transaction.
        max_attempts: after so many an effect is dead.
        own_attempts: name -> the same, of effects that have a number of their own.
        limit: of how many.
        gone: holders that are known to have died: their leases are taken back before they expire.
    """
    own = json.dumps(dict(own_attempts))
    parameters = {"max_attempts": max_attempts, "own_attempts": own, "limit": limit, "gone": list(gone)}
    return connection.exec_driver_sql(sql("expire_leases"), parameters).mappings().all()


def dead(connection: Connection, *, project: str | None = None, limit: int) -> Sequence[RowMapping]:
    """Effects whose attempts are used up and that can be tried again (EFFECT-10), newest first.

    Of one project if given; each with its instance's name.
    """
    query = (
        with_names(effects, project)
        .where(effects.c.status == "dead", _AWAITED)
        .order_by(effects.c.finished_at.desc())
        .limit(limit)
    )
    return connection.execute(query).mappings().all()


def page(connection: Connection, *, project: str | None, status: str, name: str, limit: int) -> Sequence[RowMapping]:
    """The newest effects, each with its instance's name: of a project, a status and a name, where these are given."""
    query = with_names(effects, project).order_by(effects.c.created_at.desc(), effects.c.id.desc()).limit(limit)
    return connection.execute(matching(query, (effects.c.status, status), (effects.c.name, name))).mappings().all()


def get(connection: Connection, effect_id: UUID) -> RowMapping | None:
    """An effect, with its instance's name; None if there is none of that id."""
    return connection.execute(with_names(effects, None).where(effects.c.id == effect_id)).mappings().first()


def redrive(
    connection: Connection,
    effect_ids: Sequence[UUID] | None = None,
    *,
    project: str | None = None,
    by: str = "system",
    reason: str = "",
) -> Sequence[RowMapping]:
    """Give dead effects (all, or those named; of a project, if given) a new set of attempts; returns those revived.

    Those whose failure was told, and whose instance has moved on by that, stay dead: nobody waits for them (EFFECT-10).
    Their payload says who did it and why (`redriven_by`, `redriven_because`). One whose payload exceeds the
    limits stays dead. Returned are (id, name, queue, entity).
    """
    query = (
        revival(effects.c.payload, by, reason)
        .where(_AWAITED, instances.c.id == effects.c.workflow_id)
        .returning(effects.c.id, effects.c.name, effects.c.queue, NAMED.label("entity"))
    )
    if project is not None:
        query = query.where(instances.c.project == project)
    if effect_ids is not None:
        query = query.where(among(effects.c.id, effect_ids))
    return connection.execute(query).mappings().all()


def due(connection: Connection, *, limit: int) -> Sequence[RowMapping]:
    """(id, name, queue, token, entity) of effects that could be claimed now, oldest first."""
    return connection.exec_driver_sql(_DUE, {"limit": limit}).mappings().all()


def of_instance(connection: Connection, instance_id: UUID, *, limit: int = 20) -> Sequence[RowMapping]:
    """The newest effects that an instance's moves requested, in order."""
    newest = (effects.c.created_at.desc(), effects.c.id.desc())
    query = select(effects).where(effects.c.workflow_id == instance_id).order_by(*newest).limit(limit)
    return connection.execute(query).mappings().all()[::-1]


def count_by_status(connection: Connection) -> dict[str, int]:
    """Status -> number of effects."""
    return {row[0]: row[1] for row in connection.execute(select(effects.c.status, func.count()).group_by("status"))}


def prune(connection: Connection, *, keep_days: float, limit: int) -> int:
    """Delete effects done or cancelled more than `keep_days` ago."""
    old = (
        select(effects.c.id)
        .where(
            effects.c.finished_at < func.now() - timedelta(days=keep_days),
            effects.c.status.in_(("done", "cancelled")),
        )
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    return connection.execute(effects.delete().where(among_found(effects.c.id, old))).rowcount
