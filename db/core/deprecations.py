"""Deprecations: what is deprecated, since when, removable when, and how often it was used since (VERSION-3)."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, RowMapping, func, select
from sqlalchemy.dialects.postgresql import insert

from interlock.db.schema import in_schema
from interlock.db.statements import execute, queries
from interlock.db.tables.core import definition_removals, deprecations
from interlock.workflows.definition import Definition

sql = queries(__file__)

CODE = "the code"  # deprecated by a mark there, recorded when the definitions are
NOTICE = timedelta(days=30)  # VERSION-3

# Uses of what is deprecated, in the round that made them: each partition has rows of its own, and its lock is held.
_COUNT = in_schema("""
INSERT INTO interlock.deprecation_uses (deprecation_id, partition, uses, last_used_at)
SELECT n.deprecation_id, n.partition, n.uses, now()
  FROM json_to_recordset(%(rows)s::json) AS n (deprecation_id bigint, partition smallint, uses bigint)
    ON CONFLICT (deprecation_id, partition)
    DO UPDATE SET uses = deprecation_uses.uses + EXCLUDED.uses, last_used_at = EXCLUDED.last_used_at
""")


def announced(connection: Connection) -> Sequence[RowMapping]:
    """Every deprecation, with only the columns that warnings need."""
    return connection.execute(select(deprecations).order_by(deprecations.c.id)).mappings().all()


def listed(connection: Connection) -> Sequence[RowMapping]:
    """Every deprecation with its uses and the number of live instances that it affects."""
    return connection.exec_driver_sql(sql("deprecations")).mappings().all()


def deprecate(
    connection: Connection,
    *,
    type_: str,
    version: str,
    kind: str,
    name: str = "",
    by: str,
    reason: str,
    guide: str = "",
    remove_after: datetime | None = None,
) -> bool:
    """Deprecate a version, state or trigger; False if it was deprecated before.

    Args:
        connection: the caller's transaction.
        type_, version: the definition.
        kind, name: `version` and no name, or `state` or `trigger` with its name.
        by, reason: an operator, and why.
        guide: what to do instead.
        remove_after: when it may be removed; in 30 days unless given.

    Raises:
        DBAPIError: PostgreSQL refuses it: not an operator, no such state or trigger, or a date in the past.
    """
    values: dict[str, Any] = {
        "type": type_,
        "version": version,
        "kind": kind,
        "name": name,
        "deprecated_by": by,
        "reason": reason,
        "guide": guide,
        "remove_after": remove_after or func.now() + NOTICE,
    }
    new = insert(deprecations).values(**values).on_conflict_do_nothing().returning(deprecations.c.id)
    return connection.execute(new).first() is not None


def record_marks(connection: Connection, known: Iterable[Definition]) -> int:
    """Record the deprecations marked in the code; returns the number of new ones."""
    marks = [
        (definition, kind, name, message)
        for definition in known
        for kind, name, message in (
            *(("state", state, message) for state, message in definition.deprecated.items()),
            *(("trigger", move.trigger, move.deprecated) for move in definition.transitions if move.deprecated),
        )
    ]
    return sum(
        deprecate(connection, type_=each.type, version=each.version, kind=kind, name=name, by=CODE, reason=message)
        for each, kind, name, message in marks
    )


def count(connection: Connection, partition: int, uses: Mapping[int, int]) -> None:
    """Count uses of deprecations, by id, in the commit of the moves that used them."""
    execute(
        connection,
        _COUNT,
        [{"deprecation_id": id_, "partition": partition, "uses": n} for id_, n in uses.items()],
    )


def remove(connection: Connection, *, type_: str, version: str, by: str, reason: str) -> None:
    """Remove a version: no instance can be created under it or migrated to it any more. Ended instances stay.

    Raises:
        DBAPIError: PostgreSQL refuses it: not deprecated for long enough, used by live instances, or not an operator.
    """
    values = {"type": type_, "version": version, "removed_by": by, "reason": reason}
    connection.execute(insert(definition_removals).values(**values).on_conflict_do_nothing())
