"""Operators: who may override, since when, granted by whom and why. Each grant is an instance; these rows show it."""

from collections.abc import Iterable, Sequence

from sqlalchemy import ColumnElement, Connection, RowMapping, and_, func, or_, select

from interlock.db.statements import among
from interlock.db.tables.core import operators


def current(connection: Connection, names: Iterable[str]) -> frozenset[str]:
    """Those of the given names who are operators now, by this transaction's clock."""
    query = select(operators.c.name).where(among(operators.c.name, names), _in_force())
    return frozenset(connection.execute(query).scalars())


def count(connection: Connection) -> int:
    """How many grants there ever were; 0 in a new database."""
    return connection.execute(select(func.count()).select_from(operators)).scalar_one()


def grants(connection: Connection, *, ended: bool = False) -> Sequence[RowMapping]:
    """The grants in force (with `ended`: all), oldest first, as rows of `operators`."""
    query = select(operators).where(operators.c.since.is_not(None)).order_by(operators.c.since, operators.c.grant_id)
    return connection.execute(query if ended else query.where(_in_force())).mappings().all()


def _in_force() -> ColumnElement[bool]:
    return and_(operators.c.state == "active", or_(operators.c.until.is_(None), operators.c.until > func.now()))
