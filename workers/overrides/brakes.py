"""Operators put brakes on and release them: at once, and in history (docs/spec/brake.md)."""

from secrets import token_hex

from sqlalchemy import Connection

from interlock.db.core import brakes, instances
from interlock.db.core.brakes import BrakeRow
from interlock.db.core.instances import InstanceRow
from interlock.db.core.request_rows import by_state
from interlock.workers.overrides.at_once import at_once
from interlock.workers.overrides.transaction import OverrideOrder, require_operator
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput, UnknownInstance
from interlock.workflows.input import names
from interlock.workflows.input.arguments import door
from interlock.workflows.machines.governance.brake import HELD


class NoSuchBrake(UnknownInstance):
    """No brake of that name is on. `interlock brake list` shows those that are."""


@door
def put_brake(
    runtime: Runtime, kind: str, name: str, order: OverrideOrder, *, project: str | None = None
) -> InstanceRow:
    """Put a brake on at once: what the actor, run, project or instance asks for from now on is held.

    Args:
        runtime: whose database and definitions.
        kind: actor, run, project or instance.
        name: of the actor; of the run or instance, as commands take it; empty for a project.
        order: the operator, and why.
        project: default: the runtime's.

    Returns:
        The brake's instance.

    Raises:
        NotAnOperator: `order.by` is none.
        BadInput: there is no such kind, or no name is given.
        UnknownInstance, AmbiguousInstance: the project has no such run or instance, or several.
        CannotMove, StillDeciding: see `at_once`.
    """
    if kind not in HELD:
        raise BadInput(f"a brake holds one of {', '.join(HELD)}, and nothing else")
    of_project = names.project_or(project, runtime.settings.project)
    with at_once(runtime) as acting:
        require_operator(acting.connection, order.by, "announce", f"brake on {kind} {name}", project=of_project)
        named = _named(acting.connection, kind, name, of_project)
        terms = {"kind": kind, "name": named, "reason": order.reason}
        called = f"{kind}-{token_hex(4)}"
        made = acting.born("brake", called, by=order.by, terms=terms, project=of_project, proof=order.proof)
        acting.move(made, "announce", by="system", reason=order.reason, right=by_state(0))
        return instances.by_id(acting.connection, made)


@door
def release_brake(runtime: Runtime, name: str, order: OverrideOrder, *, project: str | None = None) -> InstanceRow:
    """Release a brake: what it held goes on, in the order accepted, and what was used up is forgiven.

    Args:
        runtime, order, project: see `put_brake`.
        name: the brake's, as `interlock brake list` shows it.

    Returns:
        The brake's instance.

    Raises:
        NotAnOperator: `order.by` is none.
        NoSuchBrake: none of that name is on.
        CannotMove, StillDeciding: see `at_once`.
    """
    of_project = names.project_or(project, runtime.settings.project)
    with at_once(runtime) as acting:
        require_operator(acting.connection, order.by, "release", f"brake/{name}", project=of_project)
        found = require_brake(acting.connection, name, of_project)
        acting.move(found["brake_id"], "release", by=order.by, reason=order.reason, right=order.right)
        return instances.by_id(acting.connection, found["brake_id"])


def require_brake(connection: Connection, name: str, project: str) -> BrakeRow:
    """The brake of that name that is on in a project. Raises `NoSuchBrake`."""
    found = brakes.listed(connection, project=project, name=name.removeprefix("brake/"))
    if not found:
        raise NoSuchBrake(f"no brake {name} is on in project {project}: interlock brake list")
    return found[0]


def _named(connection: Connection, kind: str, name: str, project: str) -> str:
    if kind == "project":
        return project
    if kind == "actor":
        return names.name("actor", name)
    types = ("run",) if kind == "run" else ()
    return str(instances.find(connection, names.name(kind, name), project, *types)["id"])
