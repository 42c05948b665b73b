"""A project narrows who may fire a trigger, and takes that back: an operator's events, applied at once."""

from collections.abc import Sequence
from secrets import token_hex
from typing import Any

from interlock.db.core import instances, narrowings
from interlock.db.core.instances import InstanceRow
from interlock.workers.overrides.at_once import at_once
from interlock.workers.overrides.transaction import OverrideOrder, require_operator
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput, Refused
from interlock.workflows.input import names
from interlock.workflows.input.arguments import door


class NotNarrowed(Refused):
    """No narrowing of that trigger is in force in the project. `interlock definitions narrowed` lists them."""


@door
def narrow(
    runtime: Runtime, type_: str, trigger: str, to: Sequence[str], order: OverrideOrder, *, project: str | None = None
) -> InstanceRow:
    """Leave a trigger to fewer than its definition does, in one project, for every version of the type.

    Args:
        runtime: whose database and definitions.
        type_, trigger: of the newest definition.
        to: the authorities that keep it.
        order: the operator, and why; a dry run is refused.
        project: default: the runtime's.

    Returns:
        The narrowing's instance.

    Raises:
        NotAnOperator: `order.by` is none.
        BadInput: it would widen the right, take it from Interlock's own part that fires it, or is narrowed already.
        UnknownWorkflow, UnknownTrigger: there is none.
        CannotMove, StillDeciding: see `at_once`.
    """
    of_project = names.project_or(project, runtime.settings.project)
    definition = runtime.catalogue.get(type_)
    definition.require_trigger(trigger)
    if missing := sorted(runtime.catalogue.fires_itself(type_, trigger) - set(to)):
        raise BadInput(f"{trigger} of {type_} is fired by Interlock as {', '.join(missing)}: add that to --to")
    context: dict[str, Any] = {"type": type_, "trigger": trigger, "to": list(to)}
    terms = runtime.catalogue.get("narrowing")
    if wrong := terms.wrong_fields(context):
        raise BadInput("; ".join(wrong))
    with at_once(runtime) as acting:
        require_operator(acting.connection, order.by, "enforce", f"narrowing of {type_}.{trigger}", project=of_project)
        if narrowings.listed(acting.connection, project=of_project, type_=type_, trigger=trigger):
            raise BadInput(f"{trigger} of {type_} is narrowed already in {of_project}: lift that first (--undo)")
        name = f"{type_[:40]}.{trigger[:40]}-{token_hex(4)}"
        made = acting.born("narrowing", name, by=order.by, terms=context, project=of_project, proof=order.proof)
        acting.move(made, "enforce", by=order.by, reason=order.reason, right=order.right)
        return instances.by_id(acting.connection, made)


@door
def widen_again(
    runtime: Runtime, type_: str, trigger: str, order: OverrideOrder, *, project: str | None = None
) -> InstanceRow:
    """Lift a narrowing: the trigger is open again to whom its definition says.

    Args:
        runtime, type_, trigger, order, project: see `narrow`.

    Returns:
        The narrowing's instance.

    Raises:
        NotAnOperator: `order.by` is none.
        NotNarrowed: nothing narrows it.
        CannotMove, StillDeciding: see `at_once`.
    """
    of_project = names.project_or(project, runtime.settings.project)
    with at_once(runtime) as acting:
        require_operator(acting.connection, order.by, "lift", f"narrowing of {type_}.{trigger}", project=of_project)
        found = narrowings.listed(acting.connection, project=of_project, type_=type_, trigger=trigger)
        if not found:
            raise NotNarrowed(f"{trigger} of {type_} is not narrowed in {of_project}")
        narrowing_id = found[0]["narrowing_id"]
        acting.move(narrowing_id, "lift", by=order.by, reason=order.reason, right=order.right)
        return instances.by_id(acting.connection, narrowing_id)
