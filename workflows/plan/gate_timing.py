"""Decide when each gate of a plan runs, which tasks it judges, and for which gates a workstream waits at its end.

| moment | runs | applies to a gate that |
|---|---|---|
| `task` | after the execution of its tasks | tasks list; or such a gate depends on, if nothing needs it earlier |
| `start` | after its workstream has started | blocks tasks, or a gate that blocks tasks depends on |
| `final` | after all tasks of its workstream have ended | nothing needs earlier (`workflows.plan.ordering`) |

A gate that tasks list judges their work even if it blocks other tasks: it cannot run before the tasks that list it. A
gate that only gates of tasks depend on judges the same tasks as the first of those gates in its own workstream: any
earlier, it would judge an unchanged tree. If all of those gates are in other workstreams, it is a final one; and if
that is too late for something else, it runs at the start.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any, Literal

from interlock.workflows.plan.names import home_of, outline
from interlock.workflows.plan.ordering import Waits
from interlock.workflows.plan.plan import Plan
from interlock.workflows.plan.tasks import Gate

Moment = Literal["start", "task", "final"]
Judged = dict[str, list[str]]  # gate -> the tasks after which it runs


@dataclass(frozen=True, slots=True)
class Moments:
    """The moments of a settled plan's gates, by full name.

    Attributes:
        of: gate -> its moment.
        after: task -> all gates that run after its execution.
        closing: workstream -> its gates that its end waits for: the final ones, and those at its start that tasks or
            gates of other workstreams need.
    """

    of: Mapping[str, Moment]
    after: Mapping[str, tuple[str, ...]]
    closing: Mapping[str, tuple[str, ...]]


def moments(plan: Plan) -> Moments:
    """The moment of every gate of a settled plan. The same plan always gives the same moments."""
    if not any(each.gates for each in plan.workstreams):
        return Moments({}, {}, {})
    gates, judged = plan.gates(), _listed(plan)
    final, start = plan.final_gates(), _before_tasks(plan, judged)
    judged |= _inherited(plan, judged, gates.keys() - judged.keys() - final - start)
    after = _by_task(judged)
    left = gates.keys() - judged.keys() - final - start
    final |= _without_circles(left, lambda names: waits(plan, after, names))
    of: dict[str, Moment] = {
        name: "task" if name in judged else "final" if name in final else "start" for name in gates
    }
    return Moments(of, after, _closing(plan, of))


def _listed(plan: Plan) -> Judged:
    judged: Judged = {}
    for name, task in plan.tasks().items():
        for gate in task.gates:
            judged.setdefault(gate, []).append(name)
    return judged


def _before_tasks(plan: Plan, listed: Judged) -> set[str]:
    gates = plan.gates()
    return _with_needed(gates, [name for name, gate in gates.items() if gate.blocks], but=listed)


def _with_needed(gates: Mapping[str, Gate], names: Iterable[str], *, but: Container[str] = ()) -> set[str]:
    """These gates and all that they depend on, but for some and what only those depend on."""
    found: set[str] = set()
    needed = [*names]
    while needed:
        if (name := needed.pop()) not in found and name not in but:
            found.add(name)
            needed += gates[name].depends_on
    return found


def _inherited(plan: Plan, judged: Judged, undecided: set[str]) -> Judged:
    """Give each undecided gate the tasks of its workstream's first gate that depends on it, unless that is a cycle."""
    if not undecided:
        return {}
    place = {name: number for number, name in enumerate(plan.order())}
    inherited: Judged = {}
    for name, needed_by in _dependents_first(plan):
        if name in undecided:
            own = (other for other in needed_by if home_of(other) == home_of(name))
            if options := [tasks for other in own if (tasks := judged.get(other) or inherited.get(other))]:
                inherited[name] = min(options, key=lambda tasks: max(place[task] for task in tasks))

    def chosen(names: Set[str]) -> Judged:
        return {name: tasks for name, tasks in inherited.items() if name in names}

    return chosen(_without_circles(inherited.keys(), lambda names: waits(plan, _by_task(judged | chosen(names)))))


def _dependents_first(plan: Plan) -> Iterator[tuple[str, list[str]]]:
    needs = {name: gate.depends_on for name, gate in plan.gates().items()}
    needed_by: dict[str, list[str]] = {name: [] for name in needs}
    for name, others in needs.items():
        for other in others:
            needed_by[other].append(name)
    for name in reversed([*TopologicalSorter(needs).static_order()]):
        yield name, needed_by[name]


def _without_circles(undecided: Set[str], waits_with: Callable[[Set[str]], Waits]) -> Set[str]:
    # The end of a workstream waits for its gates: a gate that waits for tasks of a later workstream is a deadlock.
    left = undecided
    while left and (circle := next(waits_with(left).cycles(), None)):
        left = left - {node.name for wait in circle for node in (wait.waiter, wait.awaited) if node.event == "gate"}
    return left


def _closing(plan: Plan, of: Mapping[str, Moment]) -> Mapping[str, tuple[str, ...]]:
    gates = plan.gates()
    first = {name for name, gate in gates.items() if any(home_of(task) != home_of(name) for task in gate.blocks)}
    for name, gate in gates.items():
        first.update(each for each in gate.depends_on if home_of(each) != home_of(name))
    elsewhere = _with_needed(gates, first)  # by tasks or gates there; an own task that waits may be let go on without
    closing: dict[str, list[str]] = {each.id: [] for each in plan.workstreams}
    for name, moment in of.items():
        if moment == "final" or (moment == "start" and name in elsewhere):
            closing[home_of(name)].append(name)
    return {name: tuple(own) for name, own in closing.items()}


def waits(plan: Plan, after: Mapping[str, tuple[str, ...]], last: Set[str] = frozenset()) -> Waits:
    """The waits of a settled plan, with those of gates that run after the execution of tasks (`Moments.after`)."""
    keep: Any = {"workstreams": {"__all__": {"id", "depends_on", "tasks", "gates"}}}
    written = plan.model_dump(mode="json", include=keep)
    for workstream in written["workstreams"]:
        for task in workstream["tasks"]:
            task["gates"] = list(after.get(f"{workstream['id']}/{task['id']}", ()))
    return Waits(outline(written), last)


def _by_task(judged: Judged) -> dict[str, tuple[str, ...]]:
    after: dict[str, tuple[str, ...]] = {}
    for gate, tasks in judged.items():
        for task in tasks:  # a task has few gates; a gate may have all tasks
            after[task] = (*after.get(task, ()), gate)
    return after
