"""Operators set and remove limits: events, applied at once (docs/spec/limit.md)."""

from dataclasses import dataclass
from secrets import token_hex
from typing import Literal, get_args

from sqlalchemy import Connection

from interlock.db.core import instances, limits
from interlock.db.core.instances import InstanceRow
from interlock.db.core.limits import LimitRow
from interlock.workers.overrides.at_once import AtOnce, at_once
from interlock.workers.overrides.transaction import OverrideOrder, require_operator
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput, UnknownInstance
from interlock.workflows.input import names
from interlock.workflows.input.arguments import door, record
from interlock.workflows.spelling import meant

Kind = Literal["project", "type", "tool", "key"]


class NoSuchLimit(UnknownInstance):
    """No limit of that name is in force in the project. `interlock limit list` shows them."""


@record
@dataclass(frozen=True, slots=True)
class LimitedName:
    """What a limit counts: all of a project, or what has this type, tool or key there.

    Attributes:
        kind: project, type, tool or key.
        name: of the type, tool or key; `x*`: each that begins with x, counted by itself. Empty for a project.
        project: default: the runtime's.
    """

    kind: Kind
    name: str = ""
    project: str | None = None

    def settled(self, runtime: Runtime) -> "LimitedName":
        """The same with its project, and for a project, its name. Raises `BadInput` if it is not valid."""
        if not isinstance(self.kind, str) or self.kind not in get_args(Kind):
            raise BadInput(f"a limit counts by {', '.join(get_args(Kind))}, and by nothing else")
        of_project = names.project_or(self.project, runtime.settings.project)
        if self.kind == "project":
            if self.name not in ("", of_project):
                raise BadInput(f"a limit on a project counts its own project: give --project {self.name}, and no name")
            return LimitedName(self.kind, of_project, of_project)
        return LimitedName(self.kind, names.name(self.kind, self.name), of_project)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@door
def set_limit(
    runtime: Runtime,
    counted: LimitedName,
    order: OverrideOrder,
    *,
    at_once_most: int | None = None,
    starts: int | None = None,
    per_seconds: float | None = None,
) -> InstanceRow:
    """Set a limit. One of the same name is removed in the same commit.

    Args:
        runtime: whose database and definitions.
        counted: what it counts.
        order: the operator, and why.
        at_once_most: how much may run at once.
        starts, per_seconds: how much may start in any period of so many seconds.

    Returns:
        The limit's instance.

    Raises:
        NotAnOperator: `order.by` is none.
        BadInput: a term is not valid, or there is none.
        CannotMove, StillDeciding: see `at_once`.
    """
    counted = counted.settled(runtime)
    given = {"at_once": at_once_most, "starts": starts, "per_seconds": per_seconds}
    terms = {name: value for name, value in given.items() if value is not None}
    if ("starts" in terms) != ("per_seconds" in terms) or not terms:
        raise BadInput("a limit says how much may run at once, how much may start in a period, or both")
    context = {"kind": counted.kind, "name": counted.name, **terms}
    if counted.kind == "type":
        _known(runtime, counted.name)
    if wrong := runtime.catalogue.get("limit").wrong_fields(context):
        raise BadInput("; ".join(wrong))
    with at_once(runtime) as acting:
        if found := _found(acting, counted, order, "enforce"):
            acting.move(found["limit_id"], "remove", by=order.by, reason=order.reason, right=order.right)
        name = f"{counted.kind}.{counted.name}"[:80] + f"-{token_hex(4)}"
        assert counted.project is not None
        made = acting.born("limit", name, by=order.by, terms=context, project=counted.project, proof=order.proof)
        acting.move(made, "enforce", by=order.by, reason=order.reason, right=order.right)
        return instances.by_id(acting.connection, made)


@door
def remove_limit(runtime: Runtime, counted: LimitedName, order: OverrideOrder) -> InstanceRow:
    """Remove a limit: what waited for it starts within a second.

    Args:
        runtime, counted, order: see `set_limit`.

    Returns:
        The limit's instance.

    Raises:
        NotAnOperator: `order.by` is none.
        NoSuchLimit: none of that name is in force.
        CannotMove, StillDeciding: see `at_once`.
    """
    counted = counted.settled(runtime)
    with at_once(runtime) as acting:
        found = _found(acting, counted, order, "remove")
        if found is None:
            raise no_such(acting.connection, counted)
        acting.move(found["limit_id"], "remove", by=order.by, reason=order.reason, right=order.right)
        return instances.by_id(acting.connection, found["limit_id"])


def no_such(connection: Connection, counted: LimitedName) -> NoSuchLimit:
    """That no limit of this name is in force, and which limits count it all the same."""
    others = [each["name"] for each in limits.listed(connection, project=counted.project, kind=counted.kind)]
    fitting = [f"{counted.kind} {each}" for each in others if _counts(each, counted.name)]
    message = f"no limit on {counted} is in force in project {counted.project}"
    return NoSuchLimit(message + (f": what counts it is the limit on {' and on '.join(fitting)}" if fitting else ""))


def _counts(pattern: str, name: str) -> bool:
    """Whether a limit of one name counts another: the same, or one that `x*` stands for (`counts_as`)."""
    return name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1]))


def _known(runtime: Runtime, type_: str) -> None:
    """Refuse a type, or a `x*`, that no definition has."""
    types = sorted({"task", *runtime.catalogue.newest})
    if not any(_counts(type_, each) for each in types):
        near = meant(type_, types)
        hint = f"did you mean {near}?" if near else "`interlock definitions list` shows them"
        raise BadInput(f"there is no workflow type {type_}: {hint}")


def _found(acting: AtOnce, counted: LimitedName, order: OverrideOrder, attempted: str) -> LimitRow | None:
    """The limit of that name that is in force, for an operator to change."""
    assert counted.project is not None
    require_operator(acting.connection, order.by, attempted, f"limit on {counted}", project=counted.project)
    found = limits.listed(acting.connection, project=counted.project, kind=counted.kind, name=counted.name)
    return next(iter(found), None)
