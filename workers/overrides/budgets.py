"""Operators set and remove budgets: events, applied at once (docs/spec/brake.md)."""

from dataclasses import dataclass
from secrets import token_hex
from typing import Literal, get_args

from sqlalchemy import Connection

from interlock.db.core import budgets, instances
from interlock.db.core.budgets import BudgetRow
from interlock.db.core.instances import InstanceRow
from interlock.workers.overrides.at_once import AtOnce, at_once
from interlock.workers.overrides.transaction import OverrideOrder, require_operator
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput, UnknownInstance
from interlock.workflows.input import names
from interlock.workflows.input.arguments import door, record
from interlock.workflows.machines.governance.budget import RESOURCES, WHOLE

BudgetKind = Literal["actor", "run", "project"]


class NoSuchBudget(UnknownInstance):
    """No such budget is in force in the project. `interlock budget list` shows them."""


@record
@dataclass(frozen=True, slots=True)
class Budgeted:
    """Whose use a budget counts: an actor's, a run's, or all of a project.

    Attributes:
        kind: actor, run or project.
        name: of the actor, or of the run (its UUID or its name); `x*`: each actor that begins with x, counted by
            itself; `*`: each actor, or each run, by itself. Empty for a project.
        project: default: the runtime's.
    """

    kind: BudgetKind
    name: str = ""
    project: str | None = None

    def settled(self, runtime: Runtime, connection: Connection) -> "Budgeted":
        """The same with its project, for a project with its name, for a run with its UUID.

        Raises:
            BadInput: it is not valid.
            UnknownInstance: the project has no such run.
        """
        if self.kind not in get_args(BudgetKind):
            raise BadInput(f"a budget is for one of {', '.join(get_args(BudgetKind))}, and for nothing else")
        of_project = names.project_or(self.project, runtime.settings.project)
        if self.kind == "project":
            return Budgeted(self.kind, of_project, of_project)
        given = names.name(self.kind, self.name)
        if self.kind == "run" and given != "*":
            given = str(instances.find(connection, given, of_project, "run")["id"])
        return Budgeted(self.kind, given, of_project)


@door
def set_budget(
    runtime: Runtime,
    whose: Budgeted,
    resource: str,
    order: OverrideOrder,
    *,
    most: float,
    per_seconds: float | None = None,
) -> InstanceRow:
    """Set a budget. The one of the same resource, for the same, is removed in the same commit; counting begins anew.

    Args:
        runtime: whose database and definitions.
        whose: whose use it counts.
        resource: `triggers`, `claims`, `tokens` or `usd`.
        order: the operator, and why.
        most: how much may be used: whole, but of `usd`.
        per_seconds: in any period of so many seconds; None: for good.

    Returns:
        The budget's instance.

    Raises:
        NotAnOperator: `order.by` is none.
        BadInput: a term is not valid.
        UnknownInstance: the project has no such run.
        CannotMove, StillDeciding: see `at_once`.
    """
    if resource not in RESOURCES:
        raise BadInput(f"a budget is of {', '.join(RESOURCES)}, and of nothing else")
    if resource in WHOLE and most != int(most):
        raise BadInput(f"most: {resource} are counted whole")
    with at_once(runtime) as acting:
        whose = whose.settled(runtime, acting.connection)
        number = int(most) if most == int(most) else most
        terms = {"kind": whose.kind, "name": whose.name, "resource": resource, "most": number}
        terms |= {} if per_seconds is None else {"per_seconds": per_seconds}
        if wrong := runtime.catalogue.get("budget").wrong_fields(terms):
            raise BadInput("; ".join(wrong))
        if found := _found(acting, whose, resource, order, "enforce"):
            acting.move(found["budget_id"], "remove", by=order.by, reason=order.reason, right=order.right)
        assert whose.project is not None
        name = f"{whose.kind}.{resource}-{token_hex(4)}"
        made = acting.born("budget", name, by=order.by, terms=terms, project=whose.project, proof=order.proof)
        acting.move(made, "enforce", by=order.by, reason=order.reason, right=order.right)
        return instances.by_id(acting.connection, made)


@door
def remove_budget(runtime: Runtime, whose: Budgeted, resource: str, order: OverrideOrder) -> InstanceRow:
    """Remove a budget. A brake that it put on stays on until it is released.

    Args:
        runtime, whose, resource, order: see `set_budget`.

    Returns:
        The budget's instance.

    Raises:
        NotAnOperator: `order.by` is none.
        NoSuchBudget: none is in force.
        CannotMove, StillDeciding: see `at_once`.
    """
    with at_once(runtime) as acting:
        whose = whose.settled(runtime, acting.connection)
        found = _found(acting, whose, resource, order, "remove")
        if found is None:
            raise NoSuchBudget(
                f"no budget of {resource} for {whose.kind} {whose.name} is in force in project {whose.project}: "
                "interlock budget list"
            )
        acting.move(found["budget_id"], "remove", by=order.by, reason=order.reason, right=order.right)
        return instances.by_id(acting.connection, found["budget_id"])


def _found(acting: AtOnce, whose: Budgeted, resource: str, order: OverrideOrder, trigger: str) -> BudgetRow | None:
    """The budget that is in force, if `order.by` is an operator."""
    assert whose.project is not None
    what = f"budget of {resource} for {whose.kind} {whose.name}"
    require_operator(acting.connection, order.by, trigger, what, project=whose.project)
    found = budgets.listed(
        acting.connection, project=whose.project, kind=whose.kind, name=whose.name, resource=resource
    )
    return next(iter(found), None)
