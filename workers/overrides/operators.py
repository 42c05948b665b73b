"""Operators, who may override. Operators grant it to others; migrating a new database makes the first (RECOVER-6).

Each grant is an instance of `operator_grant`, whose events say who, until when, and why (docs/spec/governance.md).
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from interlock.db.connection import transaction
from interlock.db.core.request_rows import OPERATOR, Right, by_state
from interlock.db.operations import operators
from interlock.workers.access.tokens import Principal
from interlock.workers.overrides.at_once import AtOnce, at_once
from interlock.workers.overrides.transaction import OverrideOrder, require_operator
from interlock.workers.runtime import Runtime
from interlock.workers.system.users import os_user
from interlock.workflows.errors import BadInput, Refused
from interlock.workflows.input import names as naming
from interlock.workflows.input.arguments import door

FIRST = "the database was migrated for the first time"


class LastOperator(Refused):
    """No operator would be left, now or once the other grants have ended. Make somebody else an operator first."""


def first(runtime: Runtime, names: Sequence[str]) -> list[str]:
    """Make the migrating user, and those named, the first operators; nobody if the database ever had one.

    Args:
        runtime: its schema's owner acts (`Runtime.owned`).
        names: the others, as they are given with `--by`.

    Raises:
        BadInput: a name is not valid.
        StillDeciding: see `at_once`.
    """
    wanted = [os_user(), *(naming.name("operator", name) for name in names)]
    with transaction(runtime.owned) as connection:
        if operators.count(connection):
            return []
    with at_once(runtime, runtime.owned) as acting:
        return [] if operators.count(acting.connection) else grant_each(acting, wanted, by=os_user(), reason=FIRST)


@door
def grant(
    runtime: Runtime,
    names: Sequence[str],
    *,
    by: str,
    reason: str,
    until: datetime | None = None,
    principal: Principal | None = None,
) -> list[str]:
    """Make people operators. Returns those who were not operators before.

    Args:
        runtime: where.
        names: as they are given with `--by`.
        by: an operator; anybody if there is no operator left.
        reason: why.
        until: when the grants end; None: when they are revoked.
        principal: who asks for it with a token, in the token's name; None: nobody.

    Raises:
        NotAnOperator: `by` is not an operator.
        BadInput: a name or the reason is not valid.
        CannotMove: PostgreSQL refuses it, for example because `until` is in the past.
        StillDeciding: see `at_once`.
    """
    wanted = [naming.name("operator", name) for name in names]
    order = OverrideOrder(by, reason, principal=principal)
    with at_once(runtime) as acting:
        if operators.grants(acting.connection):
            require_operator(acting.connection, by, "grant", f"operator_grant of {', '.join(wanted)}")
        return grant_each(acting, wanted, by=by, reason=reason, until=until, right=order.right)


def grant_each(
    acting: AtOnce,
    names: Sequence[str],
    *,
    by: str,
    reason: str,
    until: datetime | None = None,
    right: Right = OPERATOR,
) -> list[str]:
    """Make people operators in a transaction; returns those who were not operators before. Raises as `grant`.

    Where nobody is an operator, Interlock grants, in the name of who asks for it.
    """
    known = operators.current(acting.connection, names)
    new = [name for name in dict.fromkeys(names) if name not in known]
    nobody = not operators.grants(acting.connection)
    number = operators.count(acting.connection)
    for name in new:
        number += 1
        terms = {"name": name} | ({"until": until.astimezone(UTC).isoformat()} if until else {})
        made = acting.born("operator_grant", f"{name[:80]}#{number}", by=by, terms=terms, proof=right.proof)
        acting.move(made, "grant", by=by, reason=reason, right=by_state(0) if nobody else right)
        if until:
            acting.later(made, 1, "lapse", until)
    return new


@door
def revoke(runtime: Runtime, name: str, *, by: str, reason: str, principal: Principal | None = None) -> None:
    """End an operator's grants at once.

    Raises:
        NotAnOperator: `by` is not an operator.
        LastOperator: no operator would be left, or none with an unlimited grant.
        BadInput: `name` is not an operator, or `by` or the reason is not valid.
        StillDeciding: see `at_once`.
    """
    order = OverrideOrder(by, reason, principal=principal)
    with at_once(runtime) as acting:
        require_operator(acting.connection, by, "revoke", f"operator_grant of {name}")
        current = operators.grants(acting.connection)
        ending = [row["grant_id"] for row in current if row["name"] == name]
        if not ending:
            raise BadInput(f"{name!r} is not an operator: there is nothing to revoke")
        if {row["name"] for row in current if row["until"] is None} == {name}:
            raise LastOperator(f"{name!r} is the only operator whose grant never expires: grant another one first")
        for grant_id in ending:
            acting.move(grant_id, "revoke", by=by, reason=reason, right=order.right)
