"""Check a plan's names: unique ids, references to existing items, no cycles."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import islice

from interlock.workflows.plan.names import Outline, Reference, Sort
from interlock.workflows.plan.ordering import Node, Wait, Waits
from interlock.workflows.plan.problems import FieldPath, UnlocatedProblem, quoted
from interlock.workflows.spelling import meant

MAX_TASKS = 100_000
HINTS = 50  # comparing a name with thousands is slow, and readers look at the first errors
COMPARED = 5_000
ELSEWHERE = "give this workstream a gate of its own with the same command; that may wait for the other in `depends_on`"

LineOf = Callable[[FieldPath], int]


def check_references(outline: Outline, line_of: LineOf) -> Iterator[UnlocatedProblem]:
    """Yield every error in a plan's names.

    Args:
        outline: the ids and references.
        line_of: returns the line of a field, for problems that involve two places.
    """
    yield from _bounds(outline)
    yield from _doubles(outline, line_of)
    yield from _dangling(outline)
    yield from _judged_elsewhere(outline)
    yield from _repeated(outline, line_of)
    yield from _resultless(outline)
    for cycle in Waits(outline).cycles():
        yield _circle(cycle, line_of)


def _bounds(outline: Outline) -> Iterator[UnlocatedProblem]:
    if len(outline.tasks) > MAX_TASKS:
        yield UnlocatedProblem(outline.tasks[MAX_TASKS].path, f"more than {MAX_TASKS:,} tasks", "make it several plans")
    if not outline.has_repository:
        for path in outline.patches:
            yield UnlocatedProblem(path, "a patch needs a repository to land in", "name it in the plan's `repository`")


def _doubles(outline: Outline, line_of: LineOf) -> Iterator[UnlocatedProblem]:
    first: dict[tuple[Sort, str], FieldPath] = {}
    for item in outline.items():
        path = (*item.path, "id")
        if item.id is not None and (before := first.setdefault((item.sort, item.name), path)) != path:
            scope = "the plan" if item.sort == "workstream" else f"workstream {quoted(item.workstream)}"
            message = f"{quoted(item.id)} is already the id of a {item.sort} of {scope}, in line {line_of(before)}"
            yield UnlocatedProblem(path, message)


def _dangling(outline: Outline) -> Iterator[UnlocatedProblem]:
    names = _Names(outline)
    for item in outline.items():
        for reference in item.refers:
            if item.is_own(reference):
                yield UnlocatedProblem(reference.path, f"the {item.sort} {quoted(reference.written)} depends on itself")
            elif finding := names.missing(reference):
                yield finding
    yield from filter(None, map(names.missing, outline.of_tools))


def _judged_elsewhere(outline: Outline) -> Iterator[UnlocatedProblem]:
    gates = {gate.name: gate.workstream for gate in outline.gates}
    for task in outline.tasks:
        for each in task.refers:
            if each.sort == "gate" and gates.get(each.target, task.workstream) != task.workstream:
                message = f"the gate {quoted(each.written)} judges the work of its own workstream only"
                yield UnlocatedProblem(each.path, message, ELSEWHERE)


def _repeated(outline: Outline, line_of: LineOf) -> Iterator[UnlocatedProblem]:
    for item in outline.items():
        seen: dict[tuple[FieldPath, str], FieldPath] = {}
        for each in item.refers:
            if _is_input(each):  # several inputs may be keys of one result
                continue
            before = seen.setdefault((each.path[:-1], each.target), each.path)
            if before != each.path:
                message = f"{quoted(each.written)} is listed twice; first in line {line_of(before)}"
                yield UnlocatedProblem(each.path, message)


def _resultless(outline: Outline) -> Iterator[UnlocatedProblem]:
    patches = {path[:-1] for path in outline.patches}
    without = {task.name for task in outline.tasks if task.path in patches}
    for task in outline.tasks:
        for each in task.refers:
            if _is_input(each) and each.target in without:
                yield UnlocatedProblem(each.path, f"{quoted(each.written)} is a patch, which has no result")


def _is_input(reference: Reference) -> bool:
    return reference.path[-2] == "inputs"


def _circle(cycle: tuple[Wait, ...], line_of: LineOf) -> UnlocatedProblem:
    """A cycle, as `a (line 3) -> b (line 9) -> a`: line 3 makes a wait for b, and line 9 makes b wait for a."""
    steps = [each for each in cycle if _label(each.waiter) != _label(each.awaited)]
    begin = min((each for each in steps if each.declared), key=lambda each: line_of(each.path))
    at = steps.index(begin)
    shown = [f"{_label(each.waiter)} (line {line_of(each.path)})" for each in steps[at:] + steps[:at]]
    return UnlocatedProblem(begin.path, "waits in a circle: " + " -> ".join([*shown, _label(begin.waiter)]))


def _label(node: Node) -> str:
    event, name = node
    sort = {"starts": "", "task": "", "gate": "gate "}.get(event, "workstream ")
    return sort + quoted(name)[1:-1]


class _Names:
    """All names by sort; suggests the most similar name for a missing one."""

    def __init__(self, outline: Outline) -> None:
        self._known: dict[Sort, dict[str, None]] = defaultdict(dict)
        self._elsewhere: dict[tuple[Sort, str], str] = {}
        self._hints = HINTS
        self._known["tool"] = dict.fromkeys(outline.tools)
        for item in outline.items():
            if item.id is not None:
                self._known[item.sort][item.name] = None
                self._elsewhere.setdefault((item.sort, item.id), item.name)

    def missing(self, reference: Reference) -> UnlocatedProblem | None:
        if reference.target in self._known[reference.sort]:
            return None
        return UnlocatedProblem(
            reference.path, f"no {reference.sort} {quoted(reference.written)}", self._hint(reference)
        )

    def _hint(self, reference: Reference) -> str:
        self._hints -= 1
        if self._hints < 0:
            return ""
        if other := self._elsewhere.get((reference.sort, reference.written)):
            return f"the one of another workstream is written {quoted(other)}"
        if near := meant(reference.target, self._candidates(reference)):
            qualified = "/" in reference.written or reference.sort in ("workstream", "tool")
            return f"did you mean {quoted(near if qualified else near.partition('/')[2])}?"
        return ""

    def _candidates(self, reference: Reference) -> list[str]:
        """The names to compare with: for an unqualified reference, those of its own workstream."""
        scope, slash, _ = reference.target.partition("/")
        qualified = "/" in reference.written
        near = (
            name for name in self._known[reference.sort] if not slash or qualified or name.startswith(scope + slash)
        )
        return list(islice(near, COMPARED))
