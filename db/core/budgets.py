"""Budgets: which are in force, and how much of them is used (docs/spec/brake.md)."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypedDict, cast
from uuid import UUID

from sqlalchemy import Connection

from interlock.db.fast_path import rows
from interlock.db.schema import in_schema
from interlock.db.statements import queries

sql = queries(__file__)

_PRUNE = in_schema("""
WITH old AS MATERIALIZED (
    SELECT o.budget_id, o.name, o.slot FROM interlock.budget_uses o JOIN interlock.budgets b USING (budget_id)
     WHERE b.per_seconds IS NOT NULL AND o.slot <= interlock.budget_slot(b, clock_timestamp()) - 101
     LIMIT %(limit)s
)
DELETE FROM interlock.budget_uses u USING old WHERE (u.budget_id, u.name, u.slot) = (old.budget_id, old.name, old.slot)
""")


class BudgetRow(TypedDict):
    """A budget in force, with the event that put it there: who, why, since when.

    `name`: as it counts, `x*` for each name that begins with x, a run's UUID; `shown`: a run's own name instead.
    """

    budget_id: UUID
    project: str
    kind: str
    name: str
    shown: str
    resource: str
    most: float
    per_seconds: float | None
    by: str
    reason: str
    since: datetime


class BudgetUse(TypedDict):
    """How much is used under a name that a budget counts, and whether its brake is on."""

    budget_id: UUID
    name: str
    shown: str
    used: float
    braked: bool


def listed(
    connection: Connection,
    *,
    project: str | None = None,
    kind: str | None = None,
    name: str | None = None,
    resource: str | None = None,
) -> list[BudgetRow]:
    """The budgets in force: of a project, a kind, a name and a resource, where these are given."""
    given = {"project": project, "kind": kind, "name": name, "resource": resource}
    return cast(list[BudgetRow], rows(connection, sql("listed"), given))


def uses(connection: Connection, budget_ids: Sequence[UUID]) -> list[BudgetUse]:
    """What is used of these budgets, by name, most first."""
    return cast(list[BudgetUse], rows(connection, sql("uses"), {"ids": list(budget_ids)}))


def with_uses(connection: Connection, found: Sequence[BudgetRow]) -> list[dict[str, Any]]:
    """These budgets, each with what is used of it: `uses`."""
    used = uses(connection, [row["budget_id"] for row in found])
    return [{**row, "uses": [use for use in used if use["budget_id"] == row["budget_id"]]} for row in found]


def prune(connection: Connection, *, limit: int) -> int:
    """Delete uses that no budget counts any more."""
    return connection.exec_driver_sql(_PRUNE, {"limit": limit}).rowcount
