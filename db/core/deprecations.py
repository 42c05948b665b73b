"""What is deprecated, since when, until when, and how often it was used since (VERSION-3)."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, RowMapping, func, select
from sqlalchemy.dialects.postgresql import insert

from interlock.db.connection import sql
from interlock.db.statements import execute
from interlock.db.tables.core import definition_removals, deprecations
from interlock.workflows.definition import Definition

CODE = "the code"  # deprecated by a mark there, recorded when the definitions are
NOTICE = timedelta(days=30)  # VERSION-3


def announced(connection: Connection) -> Sequence[RowMapping]:
    """Every deprecation, as few columns as telling takes."""
    return connection.execute(select(deprecations).order_by(deprecations.c.id)).mappings().all()


def listed(connection: Connection) -> Sequence[RowMapping]:
    """Every deprecation with its uses, and how many instances that have not ended stand where it matters."""
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
    """Announce that something is not to be used any more; False where that was announced before.

    Args:
        connection: the caller's transaction.
        type_, version: the definition.
        kind, name: `version` and nothing, or a `state` or a `trigger` of it.
        by, reason: an operator, and why.
        guide: what to do instead.
        remove_after: when it may be removed; in 30 days unless given.

    Raises:
        DBAPIError: PostgreSQL refuses it: no operator, nothing of that name, a time in the past.
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
    """Announce what the code marks as deprecated; how many announcements are new."""
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
        "count_deprecated",
        [{"deprecation_id": id_, "partition": partition, "uses": n} for id_, n in uses.items()],
    )


def remove(connection: Connection, *, type_: str, version: str, by: str, reason: str) -> None:
    """Remove a version: no instance can begin under it or move to it any more. What ended under it stays as it is.

    Raises:
        DBAPIError: PostgreSQL refuses it: not deprecated long enough, instances live under it, no operator.
    """
    values = {"type": type_, "version": version, "removed_by": by, "reason": reason}
    connection.execute(insert(definition_removals).values(**values).on_conflict_do_nothing())
