"""Schedules: which are due, what became of their times, and how they stand (docs/spec/schedule.md)."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, TypedDict, cast
from uuid import UUID

from sqlalchemy import Connection, RowMapping

from interlock.db.schema import in_schema
from interlock.db.statements import Rows, execute, queries

sql = queries(__file__)

# A look without locks, which is all that most sweeps do.
_ANY_DUE = in_schema("SELECT EXISTS (SELECT FROM interlock.schedules WHERE next_at <= now())")
# How many are late or cannot be fired, and the one that has waited longest.
_TROUBLED = in_schema("""
SELECT count(*) FILTER (WHERE s.next_at < now() - make_interval(secs => %(late_seconds)s)) AS late,
       count(*) FILTER (WHERE s.failed_at IS NOT NULL) AS failing,
       extract(epoch FROM now() - min(s.next_at))::double precision AS oldest_seconds, count(*) AS active
  FROM interlock.schedules s WHERE s.next_at IS NOT NULL
""")


class DueSchedule(TypedDict):
    """A schedule whose next time has come. `target_…`: the instance that it fires at; None if it has none, or that is
    archived. `now`: when the transaction began, by the database's clock. `born_proof`: the token that it was created
    with, and `token_lacks`: why that gives no right now.
    """

    schedule_id: UUID
    settled: datetime
    next_at: datetime
    now: datetime
    name: str
    project: str
    context: dict[str, Any]
    created_at: datetime
    created_by: str
    version: int
    born_proof: str | None
    token_lacks: str | None
    target_id: UUID | None
    target_type: str | None
    target_version: str | None
    target_name: str | None
    target_ended: bool


class ScheduleFiring(TypedDict):
    """What became of a time of a schedule.

    `due`: the time, as `stamp` writes it; None: of a failure, whose `message` says it. `what`: the trigger, or the
    instance that was created. `status`: of the trigger's request or the instance; `failed`: it could not be fired.
    `at`: when it was accepted, created or found to fail. `message`: the move, or what went wrong.
    """

    due: str | None
    what: str
    status: str
    at: datetime
    message: str | None


def any_due(connection: Connection) -> bool:
    """Whether the next time of any schedule has come."""
    return bool(connection.exec_driver_sql(_ANY_DUE).scalar())


def due(connection: Connection, *, known: Collection[tuple[str, str]], submits: bool, limit: int) -> list[DueSchedule]:
    """Lock schedules whose next time has come, the longest due first.

    Args:
        connection: the transaction in which they fire and are settled.
        known: (type, version) of the definitions of this release; what fires at others is left out.
        submits: those that submit plans, or the others.
        limit: the most to return.
    """
    given = {"known": [" ".join(each) for each in known], "submits": submits, "limit": limit}
    found = connection.exec_driver_sql(sql("due"), given).mappings()
    return [cast(DueSchedule, dict(row)) for row in found]


def troubled(connection: Connection, *, late_seconds: float) -> RowMapping:
    """`late`: how many schedules have been due for so long; `failing`; `oldest_seconds`; `active`: all that fire."""
    return connection.exec_driver_sql(_TROUBLED, {"late_seconds": late_seconds}).mappings().one()


def settle(connection: Connection, rows: Rows) -> None:
    """Settle the times of locked schedules up to `now`: schedule_id, next_at, fired (how many), last_due of each."""
    execute(connection, sql("settle"), rows)


def listed(
    connection: Connection, *, project: str | None = None, schedule_id: UUID | None = None, ended: bool = False
) -> Sequence[RowMapping]:
    """Schedules of one project or all, or a single one; those that have ended only if asked for."""
    given = {"project": project, "id": schedule_id, "ended": ended}
    return connection.exec_driver_sql(sql("listed"), given).mappings().all()


def firings(connection: Connection, schedule_id: UUID, *, limit: int) -> list[ScheduleFiring]:
    """What became of the newest times of a schedule, newest first."""
    found = connection.exec_driver_sql(sql("firings"), {"id": schedule_id, "limit": limit}).mappings()
    return [cast(ScheduleFiring, dict(row)) for row in found]
