"""Apply a plan's defaults, write every name in full, and let each task depend on those whose results it gets."""

from interlock.workflows.plan.names import full, result_of
from interlock.workflows.plan.plan import Plan, Workstream
from interlock.workflows.plan.tasks import Gate, Process, Task, Terms

# Gates inherit no other terms of tasks.
SHARED_WITH_GATES = frozenset({"env", "env_from", "cwd", "limits", "sandbox", "reads", "network"})
OF_TASKS = frozenset(Terms.model_fields)


def settle(plan: Plan) -> Plan:
    """The same plan with the defaults copied into each task and gate, and full names. Idempotent."""
    settled = tuple(_workstream(each, plan.defaults) for each in plan.workstreams)
    return plan.model_copy(update={"workstreams": settled})


def _workstream(workstream: Workstream, defaults: Terms) -> Workstream:
    tasks = tuple(_task(each, workstream.id, defaults) for each in workstream.tasks)
    gates = tuple(_gate(each, workstream.id, defaults) for each in workstream.gates)
    return workstream.model_copy(update={"tasks": tasks, "gates": gates})


def _task(task: Task, workstream: str, defaults: Terms) -> Task:
    needed = [result_of(written)[0] for written in task.inputs.values()]
    names = {
        "depends_on": tuple(dict.fromkeys(_full(workstream, (*task.depends_on, *needed)))),
        "gates": _full(workstream, task.gates),
        "inputs": {name: _full_input(workstream, written) for name, written in task.inputs.items()},
    }
    return task.model_copy(update={**_left_to(defaults, task, OF_TASKS), **names})


def _gate(gate: Gate, workstream: str, defaults: Terms) -> Gate:
    names = {"depends_on": _full(workstream, gate.depends_on), "blocks": _full(workstream, gate.blocks)}
    return gate.model_copy(update={**_left_to(defaults, gate, SHARED_WITH_GATES), **names})


def _left_to(defaults: Terms, process: Process, fields: frozenset[str]) -> dict[str, object]:
    left = (fields & defaults.model_fields_set) - process.model_fields_set
    return {**{name: getattr(defaults, name) for name in left}, **_variables(defaults, process)}


def _variables(defaults: Terms, process: Process) -> dict[str, object]:
    """The variables of both. The process's own, value, reference or input, override the defaults."""
    inputs = process.inputs if isinstance(process, Task) else {}
    env = {name: value for name, value in defaults.env.items() if name not in {*process.env_from, *inputs}}
    env_from = {name: value for name, value in defaults.env_from.items() if name not in {*process.env, *inputs}}
    return {"env": {**env, **process.env}, "env_from": {**env_from, **process.env_from}}


def _full(workstream: str, written: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(full(workstream, each) for each in written)


def _full_input(workstream: str, written: str) -> str:
    task, key = result_of(written)
    return full(workstream, task) if key is None else f"{full(workstream, task)}:{key}"
