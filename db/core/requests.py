"""Trigger requests: accept, release, redrive. The row is the trigger; the broker's message is only a wake-up."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, RowMapping, case, func, not_, null, or_, select
from sqlalchemy.exc import DBAPIError

from interlock.db.core import counters
from interlock.db.core.instances import with_names
from interlock.db.core.revival import revival
from interlock.db.fast_path import Row, TextStatement, first_row
from interlock.db.login import AUTHORITY
from interlock.db.schema import in_schema
from interlock.db.statements import Rows, among, among_found, as_json, functions, matching, queries, returning
from interlock.db.tables.core import instances, requests
from interlock.workflows.authority import refusal
from interlock.workflows.errors import Attempt, Function, NotYours, RequestConflict, UnknownInstance

sql = queries(__file__)

PARTITIONS = 16  # as in the generated column `partition`: the instance id's last byte, modulo this
FOREIGN_KEY_VIOLATION, NOT_YOURS = "23503", "42501"
OWN_RIGHTS = ("machinery", "effect")  # of Interlock's parts: what these are refused was overtaken, and is no attempt
# The `code` in the result of a request that died for another reason than used-up attempts. A request that `was` dead
# before an operator quarantined it is settled.
QUARANTINED, UNREADABLE = "quarantined", "unreadable"
_CODE = requests.c.result["code"].astext
_SETTLED = func.coalesce(requests.c.result["was"].astext, "") == "dead"

_HINTED = (
    requests.c.request_id,
    requests.c.partition,
    requests.c.workflow_id,
    requests.c.trigger,
    requests.c.triggered_by,
    requests.c.status,
)

# Durable when these return, being transactions of their own. One whose request_id is known already is left as it is.
_ACCEPT_ALL = in_schema("SELECT * FROM interlock.accept_all(%(rows)s::json)")
_ACCEPT_ONE = TextStatement(
    "interlock_accept_one",
    in_schema("SELECT interlock.accept_one($1, decode($2, 'hex'), $3::uuid, $4, $5, $6::jsonb, $7, $8)"),
    parameters=8,
)
# Of several callers: none of them is to wait for a lock that only one of them needs.
_ACCEPT_TOGETHER = TextStatement(
    "interlock_accept_together",
    in_schema("""
WITH hasty AS MATERIALIZED (SELECT set_config('lock_timeout', '20ms', true) AS lock_timeout)
SELECT json_object_agg(a.request_id, json_build_object('status', a.status, 'result', a.result))::text
  FROM hasty, interlock.accept_all(CASE WHEN hasty.lock_timeout IS NOT NULL THEN $1::json END, false) a
"""),
    parameters=1,
)
# The deadline that each instance's present state has begun.
_TIMERS = in_schema("""
SELECT r.workflow_id, r.not_before
  FROM interlock.trigger_requests r
  JOIN interlock.workflow_instances i ON i.id = r.workflow_id AND i.version = r.bound_version
 WHERE r.workflow_id = ANY(%(ids)s) AND r.status IN ('scheduled', 'pending') AND r.origin = 'timer'
""")
_OUTCOME = in_schema("SELECT status, result, error, attempts FROM interlock.trigger_requests WHERE request_id = %(id)s")
# Every partition with something pending, and its oldest request: one index probe a partition, however much waits.
PARTITIONS_DUE = in_schema("""
SELECT l.partition, r.request_id, r.workflow_id, r.trigger, r.triggered_by, r.status, i.workflow_type, i.entity_id
  FROM generate_series(0, 15) AS l (partition)
 CROSS JOIN LATERAL (
        SELECT * FROM interlock.trigger_requests p WHERE p.status = 'pending' AND p.partition = l.partition
         ORDER BY p.seq LIMIT 1) r
  JOIN interlock.workflow_instances i ON i.id = r.workflow_id
""")
# Requests whose time has come (timers, retries, `--after`) become pending, in bounded batches; two sweeps at once
# take different rows. Who is no operator any more has lost the right that he had when an operator's was accepted, and
# who fired with a token that was revoked since has lost any.
_WAKE = in_schema("""
WITH due AS (
    SELECT seq, authority = 'operator' AND interlock.grant_of(triggered_by) IS NULL AS lapsed,
           proof LIKE '%%token:%%' AND EXISTS (
               SELECT FROM interlock.api_tokens a WHERE a.token_id = interlock.token_of(proof) AND a.state = 'revoked')
               AS revoked
      FROM interlock.trigger_requests WHERE status = 'scheduled' AND not_before <= now()
     ORDER BY not_before LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
UPDATE interlock.trigger_requests r
   SET status = CASE WHEN d.lapsed OR d.revoked THEN 'rejected' ELSE 'pending' END,
       finished_at = CASE WHEN d.lapsed OR d.revoked THEN now() END,
       result = CASE WHEN d.revoked THEN jsonb_build_object('code', 'token_revoked', 'message',
                         'the token that it was fired with was revoked before this was due')
                     WHEN d.lapsed THEN jsonb_build_object('code', 'not_an_operator', 'message',
                         format('%%s is not an operator any more: the grant ended before this was due', r.triggered_by))
                     ELSE r.result END
  FROM due d WHERE r.seq = d.seq
""")


def partition_of(instance_id: UUID) -> int:
    """The partition of an instance. PostgreSQL computes the same."""
    return instance_id.bytes[15] % PARTITIONS


def accept(connection: Connection, rows: Rows) -> dict[str, Row]:
    """Insert requests; returns the new ones by request_id. Known ones are left unchanged: see `recorded`.

    Raises:
        UnknownInstance: a request names an instance that does not exist; none is accepted.
        NotYours: a request lacks the right that its trigger needs, or the proof of it; none is accepted.
    """
    with refusing("accept_all", rows):
        return {row["request_id"]: row for row in returning(connection, _ACCEPT_ALL, rows)}


def accept_together(statements: Engine, rows: Rows) -> dict[str, Row]:
    """Insert requests of several callers, and commit; returns `status` and `result` of the new ones by request_id.

    Known ones are left to `accept`, which also counts them.

    Raises:
        DBAPIError: one of them is refused, or waits for a lock; nothing says which, and none is accepted.
    """
    found: dict[str, Row] = json.loads(_ACCEPT_TOGETHER.result(statements, (as_json(rows),)) or "{}")
    return found


def accept_named(connection: Connection, rows: Rows) -> list[dict[str, Any]]:
    """As `accept`; returns the new ones, each with what its row's `wakeup` says of its instance, for the wake-ups."""
    accepted = accept(connection, rows)
    return [accepted[row["request_id"]] | row["wakeup"] for row in rows if row["request_id"] in accepted]


def accept_one(statements: Engine, row: Mapping[str, Any]) -> str | None:
    """Insert one request that is due at once, and commit; returns its status. None if its id is known: see `recorded`.

    Raises:
        UnknownInstance: it names an instance that does not exist.
        NotYours: it lacks the right that its trigger needs.
    """
    values = (
        row["request_id"],
        row["fingerprint"],
        row["workflow_id"],
        row["trigger"],
        row["triggered_by"],
        json.dumps(row["metadata"]),
        row.get("trace"),
        row.get("proof"),
    )
    try:
        return _ACCEPT_ONE.result(statements, values)
    except DBAPIError as error:
        if refused := _refusal("accept_all", [row], error):
            raise refused from error
        raise


def status(statements: Engine, request_id: str) -> str | None:
    """A request's status; None if it is unknown."""
    found = first_row(
        statements,
        in_schema("SELECT status FROM interlock.trigger_requests WHERE request_id = %(id)s"),
        {"id": request_id},
    )
    return str(found["status"]) if found else None


def outcome(statements: Engine, request_id: str) -> Row | None:
    """What is known of a request's outcome: `status`, `result`, `error`, `attempts`; None if it is unknown."""
    return first_row(statements, _OUTCOME, {"id": request_id})


@contextmanager
def refusing(function: Function, rows: Rows) -> Iterator[None]:
    """Raise what a function of PostgreSQL refuses to do with these rows as `NotYours`, or as `UnknownInstance`."""
    try:
        yield
    except DBAPIError as error:
        if refused := _refusal(function, rows, error):
            raise refused from error
        raise


def _refusal(function: Function, rows: Rows, error: DBAPIError) -> NotYours | UnknownInstance | None:
    state, diagnosed = getattr(error.orig, "sqlstate", None), getattr(error.orig, "diag", None)
    if state == FOREIGN_KEY_VIOLATION:
        return UnknownInstance("a trigger was fired on an instance that does not exist, or is archived")
    if diagnosed and (state, diagnosed.constraint_name) == (NOT_YOURS, AUTHORITY):
        allowed = filter(None, str(diagnosed.message_primary).rpartition(": ")[2].split(", "))
        theirs = [row for row in rows if row.get("authority") not in OWN_RIGHTS]
        attempt = Attempt(function, theirs) if theirs else None
        return NotYours(refusal(str(diagnosed.message_detail), allowed), attempt)
    return None


def recorded(connection: Connection, fingerprints: Mapping[str, bytes]) -> dict[str, RowMapping]:
    """The known requests among these ids, each with its recorded response.

    Raises:
        RequestConflict: an id was used with another body (instance, trigger, actor, data, time or version).
    """
    found = by_ids(connection, fingerprints)
    for request_id, row in found.items():
        if row["fingerprint"] != fingerprints[request_id]:
            raise RequestConflict(
                f"request_id {request_id!r} was used before for {row['trigger']!r} by {row['triggered_by']!r} with "
                "another body. Use a new request_id, or repeat the request unchanged."
            )
    return found


def follow_up(connection: Connection, follow_ups: Rows) -> list[Row]:
    """Fire triggers on linked instances; returns the new requests."""
    return returning(connection, sql("follow_up"), follow_ups)


def timers(connection: Connection, ids: Iterable[UUID]) -> Sequence[RowMapping]:
    """(workflow_id, not_before) of the deadlines of these instances' present states."""
    return connection.exec_driver_sql(_TIMERS, {"ids": list(ids)}).mappings().all()


def by_ids(connection: Connection, request_ids: Iterable[str]) -> dict[str, RowMapping]:
    """Requests by their ids; unknown ids are left out."""
    query = select(requests).where(among(requests.c.request_id, request_ids))
    return {row["request_id"]: row for row in connection.execute(query).mappings()}


def of_instance(connection: Connection, instance_id: UUID, *, limit: int = 20) -> Sequence[RowMapping]:
    """The newest requests of an instance, newest first."""
    query = select(requests).where(requests.c.workflow_id == instance_id).order_by(requests.c.seq.desc()).limit(limit)
    return connection.execute(query).mappings().all()


def in_retry_before(connection: Connection, instance_id: UUID, seq: int) -> RowMapping | None:
    """The oldest request in retry for which a later one of the same instance waits."""
    query = (
        select(requests)
        .where(
            requests.c.workflow_id == instance_id,
            requests.c.status == "scheduled",
            requests.c.attempts > 0,
            requests.c.seq < seq,
        )
        .order_by(requests.c.seq)
        .limit(1)
    )
    return connection.execute(query).mappings().first()


def count_by_status(connection: Connection, request_ids: Sequence[str] | None = None) -> dict[str, int]:
    """Status -> number of requests, for the given statuses or all."""
    query = select(requests.c.status, func.count()).group_by(requests.c.status)
    if request_ids is not None:
        query = query.where(among(requests.c.request_id, request_ids))
    return {status: count for status, count in connection.execute(query)}


def partitions_due(connection: Connection) -> Sequence[RowMapping]:
    """Each partition with pending requests, and its oldest one."""
    return connection.exec_driver_sql(PARTITIONS_DUE).mappings().all()


def wake(connection: Connection, *, limit: int) -> int:
    """Make scheduled requests pending whose time has come, or refuse them (AUTHORITY-8); returns their number."""
    return connection.exec_driver_sql(_WAKE, {"limit": limit}).rowcount


def redrive(
    connection: Connection,
    request_ids: Sequence[str] | None = None,
    *,
    by: str = "system",
    reason: str = "",
    project: str | None = None,
) -> Sequence[RowMapping]:
    """Give dead requests (all, or those named; of a project, if given) a new set of attempts; returns those revived.

    Operator and reason are stored in the metadata of the resulting events (`redriven_by`, `redriven_because`). One
    whose data exceeds the limits stays dead, because it would fail again. Quarantined or unreadable requests are
    revived only if named.
    """
    query = (
        revival(requests.c.metadata, by, reason)
        .values(result=null())
        .where(instances.c.id == requests.c.workflow_id)
        .returning(*_HINTED, instances.c.workflow_type, instances.c.entity_id)
    )
    if request_ids is None:
        query = query.where(func.coalesce(_CODE, "").not_in((QUARANTINED, UNREADABLE)))
    else:
        query = query.where(among(requests.c.request_id, request_ids))
    if project is not None:
        query = query.where(instances.c.project == project)
    return connection.execute(query).mappings().all()


def unrevived(connection: Connection, *, project: str | None = None) -> Mapping[str, list[str]]:
    """The dead, unsettled requests that `redrive` of all leaves, of a project or all.

    Returns:
        `quarantined`, `unreadable` -> ids, oldest first.
    """
    query = (
        select(case((_CODE == QUARANTINED, QUARANTINED), else_=UNREADABLE), requests.c.request_id)
        .join(instances, instances.c.id == requests.c.workflow_id)
        .where(
            requests.c.status == "dead",
            or_(_CODE.in_((QUARANTINED, UNREADABLE)), not_(functions.bounded(requests.c.metadata))),
            not_(_SETTLED),
        )
        .order_by(requests.c.seq)
    )
    left: dict[str, list[str]] = {QUARANTINED: [], UNREADABLE: []}
    for why, request_id in connection.execute(matching(query, (instances.c.project, project))):
        left[why].append(request_id)
    return left


def quarantine(connection: Connection, request_ids: Sequence[str], *, by: str, reason: str) -> Sequence[RowMapping]:
    """Quarantine pending, scheduled or braked requests: they become dead, with operator and reason. Dead ones become
    settled.

    Returns:
        (request_id, trigger, workflow_type, entity_id, was) of the changed requests; `was`: the status before. The
        others were already applied, refused or quarantined.
    """
    parameters = {"ids": list(request_ids), "by": by, "reason": reason, "error": f"quarantined by {by}: {reason}"}
    quarantined = connection.exec_driver_sql(sql("quarantine_requests"), parameters).mappings().all()
    fresh = ((row["workflow_type"], "dead") for row in quarantined if row["was"] != "dead")
    counters.note_each(connection, counters.FAILED_TRANSITIONS, fresh)
    return quarantined


def dead(connection: Connection, *, project: str | None = None, limit: int) -> Sequence[RowMapping]:
    """Requests whose attempts are used up, newest first, each with its instance's name; of one project if given."""
    query = (
        with_names(requests, project).where(requests.c.status == "dead").order_by(requests.c.seq.desc()).limit(limit)
    )
    return connection.execute(query).mappings().all()


def prune(connection: Connection, *, keep_days: float, limit: int) -> int:
    """Delete finished requests older than `keep_days`; dead ones only if settled, because others may be redriven."""
    old = (
        select(requests.c.seq)
        .where(
            requests.c.finished_at < func.now() - timedelta(days=keep_days),
            or_(requests.c.status != "dead", _SETTLED),
        )
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    return connection.execute(requests.delete().where(among_found(requests.c.seq, old))).rowcount
