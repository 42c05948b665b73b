"""Operators, who may override. Operators grant it to others; migrating a new database makes the first (RECOVER-6)."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, Engine

from interlock.db.connection import transaction
from interlock.db.operations import operators
from interlock.workers.overrides.transaction import NotAnOperator, require_operator
from interlock.workers.system.users import os_user
from interlock.workflows.errors import Refused
from interlock.workflows.input import names as naming
from interlock.workflows.input.arguments import door


class LastOperator(Refused):
    """No operator would be left, now or once the other grants have ended. Make somebody else an operator first."""


def first(connection: Connection, names: Sequence[str]) -> list[str]:
    """Make the migrating user, and those named, the first operators; nobody if the database ever had one."""
    operators.lock(connection)
    if operators.any_granted(connection):
        return []
    return operators.grant(connection, [os_user(), *(naming.name("operator", name) for name in names)], by=os_user())


@door
def grant(database: Engine, names: Sequence[str], *, by: str, until: datetime | None = None) -> list[str]:
    """Make people operators. Returns those who were not operators before.

    Args:
        database: where.
        names: as they are given with `--by`.
        by: an operator; anybody if there is no operator left.
        until: when the grants end; None: when they are revoked.

    Raises:
        NotAnOperator: `by` is not an operator.
        BadInput: a name is not valid.
    """
    wanted = [naming.name("operator", name) for name in names]
    with transaction(database) as connection:
        operators.lock(connection)
        if operators.grants(connection):
            require_operator(connection, naming.name("by", by))
        return operators.grant(connection, wanted, by=by, until=until)


@door
def revoke(database: Engine, name: str, *, by: str) -> None:
    """End an operator's grant at once.

    Raises:
        NotAnOperator: `by`, or the person named, is not an operator.
        LastOperator: no operator would be left, or none with an unlimited grant.
    """
    with transaction(database) as connection:
        operators.lock(connection)
        require_operator(connection, naming.name("by", by))
        if not operators.current(connection, [name]):
            raise NotAnOperator(f"{name!r} is not an operator: there is nothing to revoke")
        lasting = {row["name"] for row in operators.grants(connection) if row["until"] is None}
        if lasting == {name}:
            raise LastOperator(f"{name!r} is the only operator whose grant never expires: grant another one first")
        operators.revoke(connection, name, by=by)
