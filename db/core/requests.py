"""Trigger requests: accept, release, redrive. The row is the trigger; a message is only a wakeup."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, RowMapping, Text, case, cast, func, not_, null, or_, select, update
from sqlalchemy.exc import IntegrityError

from interlock.db.connection import sql
from interlock.db.core import counters
from interlock.db.fast_path import first_row
from interlock.db.schema import functions, in_schema
from interlock.db.statements import Rows, among, execute, returning
from interlock.db.tables.core import instances, requests
from interlock.workflows.errors import RequestConflict, UnknownInstance

PARTITIONS = 16  # as in the generated column `partition`: the instance id's last byte, modulo this
FOREIGN_KEY_VIOLATION = "23503"
# Why a request is dead whose attempts are not used up: the `code` in its result. One that `was` dead before an operator
# quarantined it is settled.
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


def partition_of(instance_id: UUID) -> int:
    """The partition whose worker applies this instance's triggers; PostgreSQL computes the same."""
    return instance_id.bytes[15] % PARTITIONS


def accept(connection: Connection, wanted: Rows) -> dict[str, RowMapping]:
    """Insert requests; by request_id, those that are new. Known ones are left alone: see `recorded`.

    Raises:
        UnknownInstance: a request names an instance that does not exist; none is accepted.
    """
    with _unknown_refused():
        return {row["request_id"]: row for row in returning(connection, "accept", wanted)}


def accept_one(statements: Engine, wanted: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Insert one request that is due at once, and commit; None where it is known: see `recorded`.

    Raises:
        UnknownInstance: it names an instance that does not exist.
    """
    with _unknown_refused():
        return first_row(
            statements, sql("accept_one"), {"trace": None, **wanted, "metadata": json.dumps(wanted["metadata"])}
        )


def status(statements: Engine, request_id: str) -> str | None:
    """Where a request is in its life; None where it is not known."""
    found = first_row(
        statements,
        in_schema("SELECT status FROM interlock.trigger_requests WHERE request_id = %(id)s"),
        {"id": request_id},
    )
    return str(found["status"]) if found else None


@contextmanager
def _unknown_refused() -> Iterator[None]:
    try:
        yield
    except IntegrityError as error:
        if getattr(error.orig, "sqlstate", None) == FOREIGN_KEY_VIOLATION:
            raise UnknownInstance("a trigger was fired on an instance that does not exist, or is archived") from error
        raise


def recorded(connection: Connection, fingerprints: Mapping[str, bytes]) -> dict[str, RowMapping]:
    """The requests known by these ids, each with its recorded response.

    Raises:
        RequestConflict: one was used with another body (instance, trigger, who, data or time).
    """
    found = by_ids(connection, fingerprints)
    for request_id, row in found.items():
        if row["fingerprint"] != fingerprints[request_id]:
            raise RequestConflict(
                f"request_id {request_id!r} was used before for {row['trigger']!r} by {row['triggered_by']!r} with "
                "another body. Use a new request_id, or repeat the request unchanged."
            )
    return found


def follow_up(connection: Connection, follow_ups: Rows) -> Sequence[RowMapping]:
    """Fire triggers on linked instances; the requests written."""
    return returning(connection, "follow_up", follow_ups)


def release(connection: Connection, released: Rows) -> Sequence[RowMapping]:
    """Let go of what decided approvals held; the requests that are pending or refused by it."""
    return returning(connection, "release", released)


def close_votes(connection: Connection, closed: Rows) -> int:
    """Settle the votes that were held on instances which have now been decided."""
    return execute(connection, "close_votes", closed)


def waiting(connection: Connection, ids: Iterable[UUID]) -> Sequence[RowMapping]:
    """(workflow_id, trigger, triggered_by) of what is held on these instances."""
    query = select(requests.c.workflow_id, requests.c.trigger, requests.c.triggered_by).where(
        among(requests.c.workflow_id, ids), requests.c.status == "waiting"
    )
    return connection.execute(query).mappings().all()


def by_ids(connection: Connection, request_ids: Iterable[str]) -> dict[str, RowMapping]:
    """Requests by their ids; those unknown are left out."""
    query = select(requests).where(among(requests.c.request_id, request_ids))
    return {row["request_id"]: row for row in connection.execute(query).mappings()}


def of_instance(connection: Connection, instance_id: UUID, *, limit: int = 20) -> Sequence[RowMapping]:
    """The newest requests of an instance, newest first."""
    query = select(requests).where(requests.c.workflow_id == instance_id).order_by(requests.c.seq.desc()).limit(limit)
    return connection.execute(query).mappings().all()


def count_by_status(connection: Connection, request_ids: Sequence[str] | None = None) -> dict[str, int]:
    """Status -> how many requests have it, of those given or of all."""
    query = select(requests.c.status, func.count()).group_by(requests.c.status)
    if request_ids is not None:
        query = query.where(among(requests.c.request_id, request_ids))
    return {status: count for status, count in connection.execute(query)}


def partitions_due(connection: Connection) -> Sequence[RowMapping]:
    """Each partition that has something pending, with its oldest request."""
    return connection.exec_driver_sql(sql("partitions_due")).mappings().all()


def wake(connection: Connection, *, limit: int) -> int:
    """Make due what was scheduled for now or earlier; how many became pending."""
    return connection.exec_driver_sql(sql("wake"), {"limit": limit}).rowcount


def redrive(
    connection: Connection, request_ids: Sequence[str] | None = None, *, by: str = "system"
) -> Sequence[RowMapping]:
    """Give dead requests a new set of attempts: all of them, or those named; the requests revived.

    Who did it goes with them into the events they lead to: `redriven_by` in the metadata. What is dead because its data
    are not within bounds stays so: it would die again. What is quarantined, or could not be read, has to be named.
    """
    query = (
        update(requests)
        .where(requests.c.status == "dead", functions.bounded(requests.c.metadata))
        .values(
            status="pending",
            attempts=0,
            error=None,
            result=null(),
            finished_at=None,
            not_before=func.now(),
            metadata=requests.c.metadata.op("||")(func.jsonb_build_object("redriven_by", cast(by, Text))),
        )
        .where(instances.c.id == requests.c.workflow_id)
        .returning(*_HINTED, instances.c.workflow_type, instances.c.entity_id)
    )
    if request_ids is None:
        query = query.where(func.coalesce(_CODE, "").not_in((QUARANTINED, UNREADABLE)))
    else:
        query = query.where(among(requests.c.request_id, request_ids))
    return connection.execute(query).mappings().all()


def unrevived(connection: Connection) -> Mapping[str, list[str]]:
    """The dead requests that `redrive` leaves when it takes all, without those that are settled: `quarantined`,
    `unreadable` -> their ids, oldest first."""
    query = (
        select(case((_CODE == QUARANTINED, QUARANTINED), else_=UNREADABLE), requests.c.request_id)
        .where(
            requests.c.status == "dead",
            or_(_CODE.in_((QUARANTINED, UNREADABLE)), not_(functions.bounded(requests.c.metadata))),
            not_(_SETTLED),
        )
        .order_by(requests.c.seq)
    )
    left: dict[str, list[str]] = {QUARANTINED: [], UNREADABLE: []}
    for why, request_id in connection.execute(query):
        left[why].append(request_id)
    return left


def quarantine(connection: Connection, request_ids: Sequence[str], *, by: str, reason: str) -> Sequence[RowMapping]:
    """Set requests aside that are pending or scheduled: dead, with who did it and why. Those dead already are settled.

    Returns:
        (request_id, trigger, workflow_type, entity_id, was) of those that were pending, scheduled, or dead and not
        quarantined; the others were applied, refused or quarantined before.
    """
    given = {"ids": list(request_ids), "by": by, "reason": reason, "error": f"quarantined by {by}: {reason}"}
    aside = connection.exec_driver_sql(sql("quarantine_requests"), given).mappings().all()
    fresh = ((row["workflow_type"], "dead") for row in aside if row["was"] != "dead")
    counters.note_each(connection, counters.FAILED_TRANSITIONS, fresh)
    return aside


def dead(connection: Connection, *, limit: int) -> Sequence[RowMapping]:
    """Requests whose attempts are used up, newest first, each with its instance's name."""
    query = (
        select(requests, instances.c.workflow_type, instances.c.entity_id)
        .join(instances, instances.c.id == requests.c.workflow_id)
        .where(requests.c.status == "dead")
        .order_by(requests.c.seq.desc())
        .limit(limit)
    )
    return connection.execute(query).mappings().all()


def prune(connection: Connection, *, keep_days: float, limit: int) -> int:
    """Delete finished requests older than `keep_days` (of `dead` ones only what is settled: an operator may still
    redrive the others)."""
    old: Any = (
        select(requests.c.seq)
        .where(
            requests.c.finished_at < func.now() - timedelta(days=keep_days),
            or_(requests.c.status != "dead", _SETTLED),
        )
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    return connection.execute(requests.delete().where(requests.c.seq.in_(old))).rowcount
