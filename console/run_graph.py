"""A run as a graph: what waits for what. The browser lays it out; where there is no script, it is a list."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from interlock.db.orchestration.run_tree import Dependency
from interlock.workers.orchestration.run_view import RunView
from interlock.workflows.scheduling.next_trigger import ENDED

Row = Mapping[str, Any]
Kind = Literal["workstream", "task", "gate"]

MOST = 150  # nodes; of a larger run, the workstreams that have ended are closed, or those without tasks at work


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A workstream, a task or a gate of a run.

    Attributes:
        id: its instance.
        kind, name, state: what it is, as the plan calls it, and where it stands.
        detail: how far a workstream is, or what a gate checks.
        after: the nodes that it comes after.
    """

    id: UUID
    kind: Kind
    name: str
    state: str
    detail: str
    after: tuple[UUID, ...]


def graph(view: RunView, dependencies: Sequence[Dependency], *, most: int = MOST) -> list[GraphNode]:
    """The nodes of a run, each after those that it waits for, in the plan's order.

    A workstream comes before its tasks, and its last tasks and gates come before the workstreams that wait for it.

    Args:
        view: the run.
        dependencies: as `run_tree.dependencies` reads them.
        most: beyond so many nodes, only the workstreams are shown with their tasks that have not ended; of more
            workstreams, those that have not ended.
    """
    planned = [row for row in view.workstreams.values() if not row["left_out"]]
    first = {row["id"] for row in _at_work_first(planned)[:most]}
    shown = [row for row in planned if row["id"] in first]
    opened = _opened(view, shown, most)
    parts = {row["id"] for id_ in opened for row in _parts(view, id_)}
    before = _edges(dependencies, parts)
    ends = {row["id"]: _ends(view, row["id"], before) if row["id"] in opened else (row["id"],) for row in shown}
    waits = _waits(dependencies)
    nodes = []
    for row in shown:
        after = [end for other in waits.get(row["id"], ()) if other in ends for end in ends[other]]
        nodes.append(_workstream(view, row, after))
        if row["id"] in opened:
            nodes += [_part(each, before.get(each["id"], (row["id"],))) for each in _parts(view, row["id"])]
    return nodes


def _opened(view: RunView, workstreams: Sequence[Row], most: int) -> set[UUID]:
    """The workstreams that are shown with their tasks: those that are at work first, as many as there is room for."""
    room, opened = most - len(workstreams), set()
    for row in _at_work_first(workstreams):
        if (size := len(_parts(view, row["id"]))) <= room:
            opened.add(row["id"])
            room -= size
    return opened


def _at_work_first(workstreams: Sequence[Row]) -> list[Row]:
    return sorted(workstreams, key=lambda each: each["state"] in ENDED["workstream"])


def _parts(view: RunView, workstream: UUID) -> list[Row]:
    return [*(row for row in view.tasks_of(workstream) if not row["left_out"]), *view.gates_of(workstream)]


def _edges(dependencies: Iterable[Dependency], parts: Collection[UUID]) -> dict[UUID, tuple[UUID, ...]]:
    """Part -> what comes right before it, among the parts that are shown. A gate comes after what it judges."""
    before: dict[UUID, tuple[UUID, ...]] = {}
    for source, role, target in dependencies:
        first, then = (source, target) if role == "gates" else (target, source)
        if first in parts and then in parts:
            before[then] = (*before.get(then, ()), first)
    return before


def _waits(dependencies: Iterable[Dependency]) -> dict[UUID, list[UUID]]:
    waits: dict[UUID, list[UUID]] = {}
    for each in dependencies:
        if each.role == "depends_on":
            waits.setdefault(each.source_id, []).append(each.target_id)
    return waits


def _ends(view: RunView, workstream: UUID, before: Mapping[UUID, tuple[UUID, ...]]) -> tuple[UUID, ...]:
    """A workstream's parts that none of its others comes after; of one without parts, itself."""
    parts = [row["id"] for row in _parts(view, workstream)]
    passed = {each for part in parts for each in before.get(part, ())}
    return tuple(each for each in parts if each not in passed) or (workstream,)


def _workstream(view: RunView, row: Row, after: Sequence[UUID]) -> GraphNode:
    tasks = [each for each in view.tasks_of(row["id"]) if not each["left_out"]]
    done = sum(each["state"] == "completed" for each in tasks)
    detail = f"{done} of {len(tasks)} tasks" if tasks else ""
    return GraphNode(row["id"], "workstream", str(row["name"] or row["entity_id"]), row["state"], detail, tuple(after))


def _part(row: Row, after: Sequence[UUID]) -> GraphNode:
    name = str(row["name"] or row["entity_id"]).rpartition("/")[2]
    if "gate_type" in row:
        return GraphNode(row["id"], "gate", name, row["state"], row["gate_type"], tuple(after))
    return GraphNode(row["id"], "task", name, row["state"], _tried(row), tuple(after))


def _tried(row: Row) -> str:
    return f"retry {row['retry_count']} of {row['max_retries']}" if row["retry_count"] else ""


URLS: Mapping[Kind, str] = {"workstream": "/instances/", "task": "/tasks/", "gate": "/gates/"}


def drawn(nodes: Sequence[GraphNode]) -> dict[str, Any]:
    """The nodes as `diagram.js` draws them; each says its state in words, too."""
    return {
        "nodes": [
            {
                "id": str(each.id),
                "label": f"{each.kind} {each.name}" if each.kind != "task" else each.name,
                "detail": f"{each.state}, {each.detail}" if each.detail else each.state,
                "kind": colour(each.state),
                "href": f"{URLS[each.kind]}{each.id}",
                "title": f"{each.kind} {each.name} is {each.state}",
            }
            for each in nodes
        ],
        "edges": [{"from": str(before), "to": str(each.id)} for each in nodes for before in each.after],
    }


def colour(state: str) -> str:
    """How the state of a run's part is coloured, beside its name."""
    return COLOURS.get(state.lower(), "")


COLOURS: Mapping[str, str] = {
    state: kind
    for kind, states in {
        "good": ("completed", "succeeded", "passed", "committed", "verified", "closed", "idle"),
        "busy": ("queued", "ready", "running", "executing", "validating", "busy", "applying"),
        "wait": ("blocked", "retrying", "paused", "skipped", "half_open", "suspended", "draining", "waiting"),
        "bad": ("failed", "cancelled", "canceled", "quarantined", "rolled_back", "open", "unresponsive", "dead"),
    }.items()
    for state in states
}
