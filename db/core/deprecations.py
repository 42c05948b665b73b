"""Deprecations: what is deprecated, since when, removable when, and how often it was used since (VERSION-3).

Each is an instance of `deprecation`; these rows show it (docs/spec/governance.md).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypedDict, cast
from uuid import UUID

from sqlalchemy import Connection, func, select

from interlock.db.fast_path import rows
from interlock.db.schema import in_schema
from interlock.db.statements import execute, queries
from interlock.db.tables.core import deprecations
from interlock.workflows.input import names
from interlock.workflows.input.arguments import record

sql = queries(__file__)

# Uses of what is deprecated, in the round that made them: each partition has rows of its own, and its lock is held.
_COUNT = in_schema("""
INSERT INTO interlock.deprecation_uses (deprecation_id, partition, uses, last_used_at)
SELECT n.deprecation_id, n.partition, n.uses, now()
  FROM json_to_recordset(%(rows)s::json) AS n (deprecation_id uuid, partition smallint, uses bigint)
    ON CONFLICT (deprecation_id, partition)
    DO UPDATE SET uses = deprecation_uses.uses + EXCLUDED.uses, last_used_at = EXCLUDED.last_used_at
""")


@record
@dataclass(frozen=True, slots=True)
class DefinitionPart:
    """A part of a definition: a version, or a `state` or `trigger` of it with its name. Raises `BadInput`."""

    type: str
    version: str
    kind: str = "version"
    name: str = ""

    def __post_init__(self) -> None:
        for what in ("type", "version", "kind"):
            names.name(what, getattr(self, what))
        if self.kind != "version":
            names.name("name", self.name)

    def __str__(self) -> str:
        named = f"{self.type} {self.version}"
        return named if self.kind == "version" else f"{self.kind} {self.name} of {named}"


class DeprecationRow(TypedDict):
    """A deprecation in force: a row of `deprecations`."""

    deprecation_id: UUID
    state: str
    type: str
    version: str
    kind: Literal["version", "state", "trigger"]
    name: str
    deprecated_by: str
    reason: str | None
    guide: str
    deprecated_at: datetime
    remove_after: datetime
    removal_proposed_by: str | None
    removed_by: str | None
    removed_at: datetime | None


class ListedDeprecation(DeprecationRow):
    """A deprecation in force, how often it was used since, and the number of `live` instances that it affects."""

    uses: int
    last_used_at: datetime | None
    due: bool
    live: int


def announced(connection: Connection) -> list[DeprecationRow]:
    """Every deprecation in force, with only the columns that warnings need."""
    in_force = deprecations.c.state.not_in(("proposed", "undone"))
    query = select(deprecations).where(in_force).order_by(deprecations.c.deprecated_at, deprecations.c.deprecation_id)
    return [cast(DeprecationRow, dict(row)) for row in connection.execute(query).mappings()]


def listed(connection: Connection) -> list[ListedDeprecation]:
    """Every deprecation in force, with its uses and the number of live instances that it affects."""
    return cast(list[ListedDeprecation], rows(connection, sql("deprecations"), {}))


def of_part(connection: Connection, part: DefinitionPart) -> ListedDeprecation | None:
    """A part's deprecation, as `listed`; None: it has none in force."""
    return next(
        (
            row
            for row in listed(connection)
            if DefinitionPart(row["type"], row["version"], row["kind"], row["name"]) == part
        ),
        None,
    )


def total(connection: Connection) -> int:
    """How many deprecations there ever were."""
    return connection.execute(select(func.count()).select_from(deprecations)).scalar_one()


def parts_announced_by(connection: Connection, by: str) -> set[DefinitionPart]:
    """What somebody ever announced, also if it was undone since."""
    columns = (deprecations.c.type, deprecations.c.version, deprecations.c.kind, deprecations.c.name)
    found = connection.execute(select(*columns).where(deprecations.c.deprecated_by == by))
    return {DefinitionPart(*row) for row in found}


def count(connection: Connection, partition: int, uses: Mapping[UUID, int]) -> None:
    """Count uses of deprecations, by id, in the commit of the moves that used them."""
    execute(
        connection,
        _COUNT,
        [{"deprecation_id": id_, "partition": partition, "uses": n} for id_, n in uses.items()],
    )
