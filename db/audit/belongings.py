"""Checks rows beside history against it: each is what an instance was born with or its events record, or proves one."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any
from uuid import UUID

from interlock.db.statements import queries

FIRST, LAST = UUID(int=0), UUID(int=2**128 - 1)
CHECKS = ("bodies", "links", "requests", "claims", "proofs", "held", "commits")

Execute = Callable[[str, Mapping[str, Any]], Iterable[Any]]

sql = queries(__file__)


def changed(
    execute: Execute, *, after: UUID = FIRST, upto: UUID = LAST, ids: Collection[UUID] | None = None
) -> Iterator[tuple[UUID, str]]:
    """Rows that were changed, added or removed by others than Interlock.

    Args:
        execute: runs a statement with parameters, in the snapshot that is verified; yields its rows.
        after, upto: of which instances: those with ids after the one, up to the other.
        ids: only those among them; None: all.

    Returns:
        The instance that a row belongs to; and the table, the row's key, and what was done to it.
    """
    parameters = {"after": after, "upto": upto, "ids": None if ids is None else list(ids)}
    for check in CHECKS:
        yield from execute(sql(check), parameters)
