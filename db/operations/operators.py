"""Operators: who may override, since when, and who granted it. Ended grants are kept."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, RowMapping, and_, func, insert, or_, select, update

from interlock.db.schema import in_schema
from interlock.db.statements import among
from interlock.db.tables.core import operators


def current(connection: Connection, names: Iterable[str]) -> frozenset[str]:
    """Those of the given names who are operators now, by this transaction's clock."""
    query = select(operators.c.name).where(among(operators.c.name, names), _in_force())
    return frozenset(connection.execute(query).scalars())


def any_granted(connection: Connection) -> bool:
    """Whether there ever was an operator; False in a new database."""
    return connection.execute(select(operators.c.grant_id).limit(1)).first() is not None


def grants(connection: Connection, *, ended: bool = False) -> Sequence[RowMapping]:
    """The current grants (with `ended`: all), oldest first: name, since, granted_by, until, revoked_by."""
    query = select(operators, _in_force().label("stands")).order_by(operators.c.grant_id)
    return connection.execute(query if ended else query.where(_in_force())).mappings().all()


def grant(connection: Connection, names: Collection[str], *, by: str, until: datetime | None = None) -> list[str]:
    """Make people operators, until an instant or until revoked; returns those who were not operators."""
    known = current(connection, names)
    new = [name for name in dict.fromkeys(names) if name not in known]
    rows: list[dict[str, Any]] = [{"name": name, "granted_by": by, "until": until} for name in new]
    if rows:
        connection.execute(insert(operators), rows)
    return new


def revoke(connection: Connection, name: str, *, by: str) -> int:
    """End all grants of an operator at once; returns their number."""
    ending = update(operators).where(operators.c.name == name, _in_force()).values(until=func.now(), revoked_by=by)
    return connection.execute(ending).rowcount


def lock(connection: Connection) -> None:
    """Take the lock on changing operators until this transaction ends."""
    connection.exec_driver_sql(in_schema("LOCK TABLE interlock.operators IN SHARE ROW EXCLUSIVE MODE"))


def _in_force() -> ColumnElement[bool]:
    return and_(
        operators.c.since <= func.now(),
        or_(operators.c.until.is_(None), operators.c.until > func.now()),
    )
