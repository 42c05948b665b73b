"""A plan with what it leaves to defaults filled in, and every name written in full."""

from workflows.plan.outline import full
from workflows.plan.plan import Plan, Workstream
from workflows.plan.work import Gate, Process, Task, Terms

SHARED_WITH_GATES = frozenset({"env", "cwd", "limits"})  # the rest of a task's terms is nothing a check should inherit
OF_TASKS = frozenset(Terms.model_fields)


def settle(plan: Plan) -> Plan:
    """The same plan with each task and gate complete in itself. Settling twice changes nothing."""
    settled = tuple(_workstream(each, plan.defaults) for each in plan.workstreams)
    return plan.model_copy(update={"workstreams": settled})


def _workstream(workstream: Workstream, defaults: Terms) -> Workstream:
    tasks = tuple(_task(each, workstream.id, defaults) for each in workstream.tasks)
    gates = tuple(_gate(each, workstream.id, defaults) for each in workstream.gates)
    return workstream.model_copy(update={"tasks": tasks, "gates": gates})


def _task(task: Task, workstream: str, defaults: Terms) -> Task:
    names = {"depends_on": _full(workstream, task.depends_on), "gates": _full(workstream, task.gates)}
    return task.model_copy(update={**_left_to(defaults, task, OF_TASKS), **names})


def _gate(gate: Gate, workstream: str, defaults: Terms) -> Gate:
    names = {"depends_on": _full(workstream, gate.depends_on), "blocks": _full(workstream, gate.blocks)}
    return gate.model_copy(update={**_left_to(defaults, gate, SHARED_WITH_GATES), **names})


def _left_to(defaults: Terms, process: Process, fields: frozenset[str]) -> dict[str, object]:
    left = (fields & defaults.model_fields_set) - process.model_fields_set
    return {**{name: getattr(defaults, name) for name in left}, "env": {**defaults.env, **process.env}}


def _full(workstream: str, written: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(full(workstream, each) for each in written)
