"""The graph of waits in a plan, over workstreams, tasks and gates: its order and its cycles.

| this | waits for |
|---|---|
| the start of a workstream | the end of the workstreams it depends on |
| the start of a task | its workstream's start, the end of tasks it depends on, gates that block it |
| a gate | its workstream's start, gates it depends on, the start of tasks that list it (it judges their work) |
| a final gate | also the end of all tasks of its workstream |
| the end of a task | its start, gates it lists |
| the end of a workstream | the end of its tasks, its gates |

A task lists gates of its own workstream only. A gate is final if nothing before the workstream's end needs it: no task
lists it, it blocks no task, and only final gates depend on it.
"""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Literal, NamedTuple

from interlock.workflows.plan.names import Item, Outline, Reference
from interlock.workflows.plan.problems import FieldPath

Event = Literal["opens", "starts", "task", "gate", "worked", "closes"]
PHASES: tuple[Event, Event, Event] = ("opens", "worked", "closes")
CYCLES_FOUND = 20  # finding each takes a walk through the whole plan


class Node(NamedTuple):
    """A moment in a run: the opening or closing of a workstream, the start of a task, the end of a task or gate."""

    event: Event
    name: str


@dataclass(frozen=True, slots=True)
class Wait:
    """`waiter` waits for `awaited`: because of the field at `path`, or (if not `declared`) one contains the other."""

    waiter: Node
    awaited: Node
    path: FieldPath
    declared: bool = True


class Waits:
    """The graph of an outline. Self-references and unknown names are left out; they are reported elsewhere.

    Args:
        outline: all names, and what they refer to.
        last: gates that wait for all tasks of their workstream though something else needs them.
    """

    def __init__(self, outline: Outline, last: Set[str] = frozenset()) -> None:
        self._outline, self._last = outline, last
        known: list[Node] = [Node("starts", each.name) for each in outline.tasks]
        known += [Node("task", each.name) for each in outline.tasks]
        known += [Node("gate", each.name) for each in outline.gates]
        known += [Node(event, each.name) for each in outline.workstreams for event in PHASES]
        self._graph: dict[Node, dict[Node, Wait]] = {node: {} for node in known}
        for each in outline.workstreams:
            self._add_workstream(each)
        for each in outline.tasks:
            self._add_task(each)
        for each in outline.gates:
            self._add_gate(each)

    @cached_property
    def final_gates(self) -> frozenset[str]:
        """Full names of the gates that judge a whole workstream."""
        needs = {each.name: [to.target for to in each.refers if to.sort == "gate"] for each in self._outline.gates}
        early = [to.target for task in self._outline.tasks for to in task.refers if to.sort == "gate"]
        early += [each.name for each in self._outline.gates if any(to.sort == "task" for to in each.refers)]
        final = set(needs)
        while early:
            if (name := early.pop()) in final:
                final.remove(name)
                early += needs[name]
        return frozenset(final)

    def order(self) -> tuple[str, ...]:
        """Full names of the tasks in dependency order; the same plan always gives the same order."""
        return tuple(name for event, name in TopologicalSorter(self._graph).static_order() if event == "starts")

    def longest_chain(self) -> int:
        """The number of tasks in the longest chain of tasks that must run one after another."""
        lengths: dict[Node, int] = {}
        for node in TopologicalSorter(self._graph).static_order():
            lengths[node] = max((lengths[each] for each in self._graph[node]), default=0) + (node[0] == "starts")
        return max(lengths.values(), default=0)

    def cycles(self) -> Iterator[tuple[Wait, ...]]:
        """Cycles of waits, at most 20, no two with a field in common."""
        graph = {node: dict(waits) for node, waits in self._graph.items()}
        for _ in range(CYCLES_FOUND):
            try:
                TopologicalSorter(graph).prepare()
            except CycleError as error:
                nodes = error.args[1][::-1]  # graphlib lists the awaited node first
                waits = tuple(graph[waiter][awaited] for waiter, awaited in pairwise(nodes))
                yield waits
                # Remove all its edges: correcting any of them breaks the cycle, so variants need no report.
                for each in waits:
                    if each.declared:
                        del graph[each.waiter][each.awaited]
            else:
                return

    def reached(self, marks: Mapping[Node, int]) -> Mapping[Node, int]:
        """The marks, as bits, of each node and of all that it waits for, however far. There must be no cycle."""
        found: dict[Node, int] = {}
        for node in TopologicalSorter(self._graph).static_order():
            found[node] = marks.get(node, 0)
            for awaited in self._graph[node]:
                found[node] |= found[awaited]
        return found

    def _add_workstream(self, item: Item) -> None:
        opens, worked, closes = (Node(event, item.name) for event in PHASES)
        self._part(closes, worked, item)
        self._part(worked, opens, item)
        for to in item.refers_to_others:
            self._wait(opens, Node("closes", to.target), to)

    def _add_task(self, item: Item) -> None:
        starts, ends = Node("starts", item.name), Node("task", item.name)
        self._part(Node("worked", item.workstream), ends, item)
        self._part(ends, starts, item)
        self._part(starts, Node("opens", item.workstream), item)
        for to in item.refers_to_others:
            if to.sort == "task":
                self._wait(starts, Node("task", to.target), to)
            else:
                self._wait(ends, Node("gate", to.target), to)
                self._wait(Node("gate", to.target), starts, to)

    def _add_gate(self, item: Item) -> None:
        gate = Node("gate", item.name)
        last = item.name in self.final_gates or item.name in self._last
        self._part(gate, Node("worked" if last else "opens", item.workstream), item)
        self._part(Node("closes", item.workstream), gate, item)
        for to in item.refers_to_others:
            if to.sort == "gate":
                self._wait(gate, Node("gate", to.target), to)
            else:
                self._wait(Node("starts", to.target), gate, to)

    def _part(self, waiter: Node, awaited: Node, item: Item) -> None:
        self._graph[waiter][awaited] = Wait(waiter, awaited, item.path, declared=False)

    def _wait(self, waiter: Node, awaited: Node, because: Reference) -> None:
        if waiter in self._graph and awaited in self._graph:
            self._graph[waiter][awaited] = Wait(waiter, awaited, because.path)
