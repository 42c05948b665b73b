"""The rest of a plan after some of its workstreams are completed."""

from collections.abc import Collection

from interlock.workflows.plan.names import home_of
from interlock.workflows.plan.plan import Plan, Workstream


def rest(plan: Plan, completed: Collection[str]) -> Plan:
    """A settled plan in which completed workstreams are empty and nothing depends on them.

    Args:
        plan: a settled plan, with full names.
        completed: ids of its completed workstreams. They stay in the plan, skipped and empty, so that a run shows them.
    """
    left = tuple(_emptied(each) if each.id in completed else _freed(each, completed) for each in plan.workstreams)
    return plan.model_copy(update={"workstreams": left})


def _emptied(workstream: Workstream) -> Workstream:
    return workstream.model_copy(update={"skip": True, "depends_on": (), "tasks": (), "gates": ()})


def _freed(workstream: Workstream, completed: Collection[str]) -> Workstream:
    # A completed workstream's gates have passed, so references to them can be removed as well.
    tasks = (
        each.model_copy(update={"depends_on": _open(each.depends_on, completed), "gates": _open(each.gates, completed)})
        for each in workstream.tasks
    )
    gates = (
        each.model_copy(
            update={"depends_on": _open(each.depends_on, completed), "blocks": _open(each.blocks, completed)}
        )
        for each in workstream.gates
    )
    update = {"depends_on": _open(workstream.depends_on, completed), "tasks": tuple(tasks), "gates": tuple(gates)}
    return workstream.model_copy(update=update)


def _open(names: tuple[str, ...], completed: Collection[str]) -> tuple[str, ...]:
    return tuple(name for name in names if home_of(name) not in completed)
