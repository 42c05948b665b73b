"""Who may override: granted by another operator, the first of a new database by whoever migrates it (SSOT 5.2.2)."""

import os
import pwd
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, Engine

from db import operators
from db.connect import transaction
from workers.firing import named
from workers.overrides.operation import NotAnOperator, require_operator
from workflows.errors import Refused


class LastOperator(Refused):
    """Nobody could override any more, now or once the other grants have ended. Grant it to somebody else first."""


def os_user() -> str:
    """The name of the user that this process runs as; its number where it has none, as in some containers."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid-{os.getuid()}"


def first(connection: Connection, names: Sequence[str]) -> list[str]:
    """Make the first operators of a new database: who migrates it, and those named; nobody where there were any."""
    operators.lock(connection)
    if operators.any_ever(connection):
        return []
    return operators.grant(connection, [os_user(), *(named("operator", name) for name in names)], by=os_user())


def grant(database: Engine, names: Sequence[str], *, by: str, until: datetime | None = None) -> list[str]:
    """Make people operators; those who were none.

    Args:
        database: where.
        names: as they are given with `--by`.
        by: an operator; anybody where there is none left.
        until: when it ends by itself; None: when it is revoked.

    Raises:
        NotAnOperator: `by` is none.
        BadInput: a name will not do.
    """
    wanted = [named("operator", name) for name in names]
    with transaction(database) as connection:
        operators.lock(connection)
        if operators.grants(connection):
            require_operator(connection, named("by", by))
        return operators.grant(connection, wanted, by=by, until=until)


def revoke(database: Engine, name: str, *, by: str) -> None:
    """End what makes somebody an operator, at once.

    Raises:
        NotAnOperator: `by`, or who is named, is none.
        LastOperator: nobody would be left, or nobody for good.
    """
    with transaction(database) as connection:
        operators.lock(connection)
        require_operator(connection, named("by", by))
        if not operators.among_them(connection, [name]):
            raise NotAnOperator(f"{name!r} is no operator: there is nothing to revoke")
        lasting = {row["name"] for row in operators.grants(connection) if row["until"] is None}
        if lasting == {name}:
            raise LastOperator(
                f"{name!r} is the only operator whose grant has no end: `interlock operator grant` somebody else first"
            )
        operators.revoke(connection, name, by=by)
