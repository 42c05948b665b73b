"""What is left of a plan once some of its workstreams are done."""

from collections.abc import Collection

from workflows.plan.plan import Plan, Workstream


def rest(plan: Plan, done: Collection[str]) -> Plan:
    """A settled plan in which workstreams that are done have no work left, and nothing waits for them.

    Args:
        plan: every task and gate named in full.
        done: ids of its completed workstreams. They stay, skipped and empty, so that a run still shows them.
    """
    left = tuple(_emptied(each) if each.id in done else _freed(each, done) for each in plan.workstreams)
    return plan.model_copy(update={"workstreams": left})


def _emptied(workstream: Workstream) -> Workstream:
    return workstream.model_copy(update={"skip": True, "depends_on": (), "tasks": (), "gates": ()})


def _freed(workstream: Workstream, done: Collection[str]) -> Workstream:
    # What is done has passed its gates too: a completed workstream has none left open.
    tasks = (
        each.model_copy(update={"depends_on": _open(each.depends_on, done), "gates": _open(each.gates, done)})
        for each in workstream.tasks
    )
    gates = (
        each.model_copy(update={"depends_on": _open(each.depends_on, done), "blocks": _open(each.blocks, done)})
        for each in workstream.gates
    )
    update = {"depends_on": _open(workstream.depends_on, done), "tasks": tuple(tasks), "gates": tuple(gates)}
    return workstream.model_copy(update=update)


def _open(names: tuple[str, ...], done: Collection[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name.partition("/")[0] not in done)
