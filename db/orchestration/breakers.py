"""Circuit breakers: their counts and trials, one row a tool, shared by all who call it (docs/spec/breaker.md).

States are the engine's; here is only what leads to a trigger. The count that reaches a threshold and the request of the
trigger are written in one transaction, so that neither is ever without the other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, RowMapping, func, select, update

from interlock.db.connection import sql
from interlock.db.fast_path import first_row
from interlock.db.statements import among
from interlock.db.tables import circuit_breakers
from interlock.db.tables.core import requests


@dataclass(frozen=True, slots=True)
class Breaker:
    """A breaker as it stands. `owed`: a move is decided (or its time has come) and not applied yet.

    `seconds_until_reset` is what is left of an open one's cooldown, or of a half-open one's trial.
    """

    breaker_id: UUID
    project_id: UUID
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
    """What a report came to; `reached`: the breaker moves by it."""

    failure_count: int
    reached: bool


def look(statements: Engine, project_id: UUID, tool_id: str) -> Breaker | None:
    """A tool's breaker, in one round trip and without a lock; None where it has none.

    Args:
        statements: the engine for single statements.
        project_id, tool_id: whose.
    """
    found = first_row(statements, sql("breaker"), {"project_id": project_id, "tool_id": tool_id})
    return Breaker(**found) if found else None


def take_trial(statements: Engine, breaker_id: UUID, *, lease_seconds: float) -> UUID | None:
    """The token of a half-open breaker's only trial, or None where somebody else has it."""
    given = {"breaker_id": breaker_id, "lease_seconds": lease_seconds}
    taken = first_row(statements, sql("breaker_trial"), given)
    return taken["trial_token"] if taken else None


def succeeded(statements: Engine, breaker_id: UUID) -> None:
    """A call of a closed breaker succeeded: forget the failures before it."""
    first_row(statements, sql("breaker_succeeded"), {"breaker_id": breaker_id})


def forget_failures(connection: Connection, breaker_id: UUID) -> None:
    """Let a closed breaker count anew, in the caller's transaction."""
    connection.exec_driver_sql(sql("breaker_succeeded"), {"breaker_id": breaker_id})


def failed(connection: Connection, breaker_id: UUID, version: int) -> Count | None:
    """A call of a closed breaker failed; None where it is not closed any more, or was not all the time."""
    return _count(connection, "breaker_failed", {"breaker_id": breaker_id, "version": version})


def trial_passed(connection: Connection, breaker_id: UUID, token: UUID) -> Count | None:
    """A trial succeeded; None where another caller has it by now."""
    return _count(connection, "breaker_trial_passed", {"breaker_id": breaker_id, "token": token})


def trial_failed(connection: Connection, breaker_id: UUID, token: UUID) -> Count | None:
    """A trial failed; None where another caller has it by now."""
    return _count(connection, "breaker_trial_failed", {"breaker_id": breaker_id, "token": token})


def give_back(connection: Connection, breaker_id: UUID, token: UUID) -> None:
    """A trial ended without an outcome: let the next caller have it."""
    connection.execute(
        update(circuit_breakers)
        .where(circuit_breakers.c.breaker_id == breaker_id, circuit_breakers.c.trial_token == token)
        .values(trial_token=None, trial_until=None)
    )


def configure(connection: Connection, project_id: UUID, configuration: Mapping[str, Any]) -> None:
    """Let a tool's breaker have this configuration from now on; one that has it already is not touched.

    Args:
        connection: the caller's transaction; until it commits, whoever counts a call of the tool waits.
        project_id: whose breaker.
        configuration: `tool_id`, `failure_threshold`, `cooldown_seconds`, `success_threshold`.
    """
    connection.exec_driver_sql(sql("breaker_configure"), {"project_id": project_id} | dict(configuration))


def wake(connection: Connection, request_id: str) -> None:
    """Make one scheduled request due, if its time has come: what the dispatch sweep does for all."""
    connection.execute(
        update(requests)
        .where(
            requests.c.request_id == request_id,
            requests.c.status == "scheduled",
            requests.c.not_before <= func.now(),
        )
        .values(status="pending")
    )


def page(
    connection: Connection, *, project_ids: Sequence[UUID] = (), tool_id: str | None = None, limit: int = 100
) -> Sequence[RowMapping]:
    """(project_id, tool_id) of breakers, by name: of some projects, of one tool, or all."""
    query = select(circuit_breakers.c.project_id, circuit_breakers.c.tool_id).limit(limit)
    if project_ids:
        query = query.where(among(circuit_breakers.c.project_id, project_ids))
    if tool_id:
        query = query.where(circuit_breakers.c.tool_id == tool_id)
    return (
        connection.execute(query.order_by(circuit_breakers.c.tool_id, circuit_breakers.c.project_id)).mappings().all()
    )


def _count(connection: Connection, name: str, given: dict[str, Any]) -> Count | None:
    row = connection.exec_driver_sql(sql(name), given).mappings().first()
    return Count(**row) if row else None
