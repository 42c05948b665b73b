"""Circuit breakers: counts and trials, one row per tool, shared by all its callers (docs/spec/breaker.md).

Only the engine changes states. The count that reaches a threshold and the request for the trigger that follows are
written in one transaction.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, RowMapping, func, insert, select, update

from interlock.db.fast_path import first_row
from interlock.db.schema import in_schema
from interlock.db.statements import matching, queries
from interlock.db.tables.core import requests
from interlock.db.tables.orchestration import breaker_configurations as configurations
from interlock.db.tables.orchestration import circuit_breakers

sql = queries(__file__)

CONFIGURED = ("failure_threshold", "cooldown_seconds", "success_threshold")

# Take the trial of a half-open breaker, if nobody has it: of many who ask at once, the row lock lets one in, and the
# others find its token. One who died with it is waited for until the lease is over.
_TAKE_TRIAL = in_schema("""
UPDATE interlock.circuit_breakers
   SET trial_token = gen_random_uuid(), trial_claim = NULL,
       trial_until = now() + make_interval(secs => %(lease_seconds)s)
 WHERE breaker_id = %(breaker_id)s AND state = 'HALF_OPEN' AND interlock.lets_through(breaker_id)
RETURNING trial_token
""")
# The trial that a task's claim took; none if the claim was made while the breaker was closed.
_TRIAL_OF_CLAIM = in_schema("""
SELECT trial_token FROM interlock.circuit_breakers WHERE breaker_id = %(breaker_id)s AND trial_claim = %(claim_id)s
""")
# A success forgets the failures before it. It writes nothing where there are none, and nothing where they have already
# opened the breaker.
_FORGET_FAILURES = in_schema("""
UPDATE interlock.circuit_breakers
   SET failure_count = 0
 WHERE breaker_id = %(breaker_id)s AND state = 'CLOSED' AND failure_count > 0 AND failure_count < failure_threshold
RETURNING breaker_id
""")
# One more failure in a row. Never past the threshold: whoever reaches it opens the breaker, the others find it reached.
_FAILED = in_schema("""
UPDATE interlock.circuit_breakers b
   SET failure_count = b.failure_count + 1, last_failure_at = clock_timestamp()
  FROM interlock.workflow_instances i
 WHERE b.breaker_id = %(breaker_id)s AND b.state = 'CLOSED' AND b.failure_count < b.failure_threshold
   AND i.id = b.breaker_id AND i.version = %(version)s  -- a call of before it opened and closed again does not count
RETURNING b.failure_count, b.failure_count >= b.failure_threshold AS reached
""")
# A trial succeeded. The last one that it takes keeps its token, and nothing else, until the breaker has closed: nobody
# else tries in between. The others make room for the next trial.
_TRIAL_PASSED = in_schema("""
UPDATE interlock.circuit_breakers
   SET success_count = success_count + 1, trial_claim = NULL, trial_until = NULL,
       trial_token = CASE WHEN success_count + 1 >= success_threshold THEN trial_token END
 WHERE breaker_id = %(breaker_id)s AND state = 'HALF_OPEN' AND trial_token = %(token)s
   AND num_nonnulls(trial_claim, trial_until) = 1
RETURNING failure_count, trial_token IS NOT NULL AS reached
""")
# A trial failed: its token stays, and nothing else, until the breaker is open again.
_TRIAL_FAILED = in_schema("""
UPDATE interlock.circuit_breakers
   SET failure_count = failure_count + 1, last_failure_at = clock_timestamp(), trial_claim = NULL, trial_until = NULL
 WHERE breaker_id = %(breaker_id)s AND state = 'HALF_OPEN' AND trial_token = %(token)s
   AND num_nonnulls(trial_claim, trial_until) = 1
RETURNING failure_count, true AS reached
""")


@dataclass(frozen=True, slots=True)
class Breaker:
    """A breaker as read. `owed`: a trigger for it is accepted or due, and not applied yet.

    `seconds_until_reset`: the rest of an open breaker's cooldown, or of the time limit of a half-open one's trial.
    """

    breaker_id: UUID
    project: str
    tool_id: str
    state: str
    version: int
    failure_threshold: int
    cooldown_seconds: float
    success_threshold: int
    failure_count: int
    success_count: int
    last_failure_at: datetime | None
    opened_at: datetime | None
    seconds_until_reset: float
    owed: bool


@dataclass(frozen=True, slots=True)
class Count:
    """A breaker's count after a report; `reached`: the count reached its threshold."""

    failure_count: int
    reached: bool


def look(statements: Engine, project: str, tool_id: str) -> Breaker | None:
    """Read a tool's breaker in one round trip, without a lock; None if it has none.

    Args:
        statements: the engine for single statements.
        project, tool_id: the tool.
    """
    found = first_row(statements, sql("breaker"), {"project": project, "tool_id": tool_id})
    return Breaker(**found) if found else None


def take_trial(statements: Engine, breaker_id: UUID, *, lease_seconds: float) -> UUID | None:
    """Take a half-open breaker's only trial; returns its token, or None if another caller has it."""
    parameters = {"breaker_id": breaker_id, "lease_seconds": lease_seconds}
    taken = first_row(statements, _TAKE_TRIAL, parameters)
    return taken["trial_token"] if taken else None


def trial_of_claim(statements: Engine, breaker_id: UUID, claim_id: int) -> UUID | None:
    """The token of the trial that a task's claim took; None if it took none."""
    taken = first_row(statements, _TRIAL_OF_CLAIM, {"breaker_id": breaker_id, "claim_id": claim_id})
    return taken["trial_token"] if taken else None


def succeeded(statements: Engine, breaker_id: UUID) -> None:
    """Record a successful call through a closed breaker: reset its failure count."""
    first_row(statements, _FORGET_FAILURES, {"breaker_id": breaker_id})


def forget_failures(connection: Connection, breaker_id: UUID) -> None:
    """Reset a closed breaker's failure count, in the caller's transaction."""
    connection.exec_driver_sql(_FORGET_FAILURES, {"breaker_id": breaker_id})


def failed(connection: Connection, breaker_id: UUID, version: int) -> Count | None:
    """Record a failed call through a closed breaker; None if the breaker has left that period of CLOSED."""
    return _count(connection, _FAILED, {"breaker_id": breaker_id, "version": version})


def trial_passed(connection: Connection, breaker_id: UUID, token: UUID) -> Count | None:
    """Record a successful trial; None if another caller has the trial by now."""
    return _count(connection, _TRIAL_PASSED, {"breaker_id": breaker_id, "token": token})


def trial_failed(connection: Connection, breaker_id: UUID, token: UUID) -> Count | None:
    """Record a failed trial; None if another caller has the trial by now."""
    return _count(connection, _TRIAL_FAILED, {"breaker_id": breaker_id, "token": token})


def give_back(connection: Connection, breaker_id: UUID, token: UUID) -> None:
    """Give up a trial that ended without an outcome, so that the next caller can have it."""
    connection.execute(
        update(circuit_breakers)
        .where(circuit_breakers.c.breaker_id == breaker_id, circuit_breakers.c.trial_token == token)
        .values(trial_token=None, trial_claim=None, trial_until=None)
    )


def configure(
    connection: Connection, project: str, tool_id: str, wanted: Mapping[str, Any], *, by: str, reason: str
) -> None:
    """Change the configuration of a tool's breaker (BREAKER-10), and record it; does nothing if it has it already.

    Args:
        connection: the caller's transaction; until it commits, reports of calls to the tool wait.
        project, tool_id: whose breaker.
        wanted: the values to set, of `CONFIGURED`; one that is missing or None stays as it is.
        by, reason: who changes it, and why.
    """
    own = circuit_breakers.c
    breaker_id = connection.execute(
        select(own.breaker_id).where(own.project == project, own.tool_id == tool_id)
    ).scalar()
    if breaker_id is not None:
        row = {name: wanted.get(name) for name in CONFIGURED}
        connection.execute(
            insert(configurations), row | {"breaker_id": breaker_id, "configured_by": by, "reason": reason}
        )


def configured(connection: Connection, breaker_id: UUID, *, limit: int) -> Sequence[RowMapping]:
    """The newest `limit` changes of a breaker's configuration, oldest first: who, why, new and `old_` values."""
    own = configurations.c
    query = select(*(each for each in own if each.name not in ("id", "breaker_id")))
    query = query.where(own.breaker_id == breaker_id).order_by(own.id.desc()).limit(limit)
    return connection.execute(query).mappings().all()[::-1]


def wake(connection: Connection, request_id: str) -> None:
    """Make one scheduled request pending if its time has come, as the dispatch sweep does for all."""
    connection.execute(
        update(requests)
        .where(
            requests.c.request_id == request_id,
            requests.c.status == "scheduled",
            requests.c.not_before <= func.now(),
        )
        .values(status="pending")
    )


def page(connection: Connection, *, project: str | None, limit: int) -> Sequence[RowMapping]:
    """(project, tool_id) of breakers, sorted by tool, of one project if given."""
    query = select(circuit_breakers.c.project, circuit_breakers.c.tool_id).limit(limit)
    query = matching(query, (circuit_breakers.c.project, project))
    return connection.execute(query.order_by(circuit_breakers.c.tool_id, circuit_breakers.c.project)).mappings().all()


def _count(connection: Connection, statement: str, parameters: dict[str, Any]) -> Count | None:
    row = connection.exec_driver_sql(statement, parameters).mappings().first()
    return Count(**row) if row else None
