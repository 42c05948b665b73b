"""The ids and references of a plan, with the fields that contain them.

A task refers to others in `depends_on`, in `gates`, and in `inputs`, whose results it gets.

They are read from plain values instead of the models, so that wrong references are reported together with all other
errors of the file. Values of a wrong shape are ignored here, because they are reported elsewhere.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from interlock.workflows.plan.problems import FieldPath

Sort = Literal["workstream", "task", "gate", "tool"]
REFERS: dict[Sort, tuple[tuple[str, Sort], ...]] = {
    "workstream": (("depends_on", "workstream"),),
    "task": (("depends_on", "task"), ("gates", "gate"), ("inputs", "task")),
    "gate": (("depends_on", "gate"), ("blocks", "task")),
}


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference `written` in the field at `path` to a `sort` with the full name `target`."""

    path: FieldPath
    written: str
    sort: Sort
    target: str


@dataclass(frozen=True, slots=True)
class Item:
    """A workstream, task or gate. `name` is the full name (`build/compile`).

    An item without a readable id is named after its position, in a form that is not a valid id. Its references are
    still checked, but nothing can refer to it.
    """

    sort: Sort
    path: FieldPath
    id: str | None
    name: str
    workstream: str
    refers: tuple[Reference, ...]

    def is_own(self, reference: Reference) -> bool:
        """Whether the reference is to the item itself. A task and a gate may have the same name."""
        return (reference.sort, reference.target) == (self.sort, self.name)

    @property
    def refers_to_others(self) -> Iterator[Reference]:
        """All references except those to itself."""
        return (each for each in self.refers if not self.is_own(each))


@dataclass(frozen=True, slots=True)
class Outline:
    """All items as written, the names of the tools, the references to tools, and the fields of patches."""

    workstreams: list[Item] = field(default_factory=list)
    tasks: list[Item] = field(default_factory=list)
    gates: list[Item] = field(default_factory=list)
    tools: list[str] = field(default_factory=list)
    of_tools: list[Reference] = field(default_factory=list)
    patches: list[FieldPath] = field(default_factory=list)
    has_repository: bool = False

    def items(self) -> Iterator[Item]:
        """Workstreams, then tasks, then gates."""
        yield from self.workstreams
        yield from self.tasks
        yield from self.gates


def full(workstream: str, written: str) -> str:
    """The full name of a task or gate as written in `workstream`: in `build`, `compile` means `build/compile`."""
    return written if "/" in written else f"{workstream}/{written}"


def home_of(name: str) -> str:
    """The workstream of a task or gate, of its full name: `build` of `build/compile`."""
    return name.partition("/")[0]


def result_of(written: str) -> tuple[str, str | None]:
    """The task and the key of its result that an input names: `build/compile:version`; None: the whole result."""
    task, colon, key = written.partition(":")
    return task, key if colon else None


def outline(value: object) -> Outline:
    """The outline of a plan's plain values, which may have any shape."""
    plan = _mapping(value)
    found = Outline(tools=list(_mapping(plan.get("tools"))), has_repository=plan.get("repository") is not None)
    found.of_tools.extend(_tool(plan.get("defaults"), ("defaults",)))
    for path, each in _entries(plan, "workstreams", ()):
        workstream = _item("workstream", each, path, None)
        found.workstreams.append(workstream)
        for inner, task in _entries(each, "tasks", path):
            found.tasks.append(_item("task", task, inner, workstream.name))
            found.of_tools.extend(_tool(task, inner))
            if task.get("patch") is not None:
                found.patches.append((*inner, "patch"))
        for inner, gate in _entries(each, "gates", path):
            found.gates.append(_item("gate", gate, inner, workstream.name))
    return found


def _item(sort: Sort, value: dict[str, object], path: FieldPath, workstream: str | None) -> Item:
    written = value.get("id")
    own = str(written) if isinstance(written, str) and written else None
    name = own or f"({path[-1]})"
    scope = name if workstream is None else workstream
    refers = (each for field, to in REFERS[sort] for each in _references(value, (*path, field), to, scope))
    return Item(sort, path, own, name if workstream is None else f"{scope}/{name}", scope, tuple(refers))


def _references(value: dict[str, object], path: FieldPath, to: Sort, workstream: str) -> Iterator[Reference]:
    for step, each in _steps(value, str(path[-1])):
        if isinstance(each, str) and (written := result_of(str(each))[0] if path[-1] == "inputs" else str(each)):
            yield Reference((*path, step), written, to, written if to == "workstream" else full(workstream, written))


def _steps(value: dict[str, object], field: str) -> Iterable[tuple[str | int, object]]:
    """The steps and values of a field's entries: of a list, or of the mapping `inputs`."""
    found = value.get(field)
    if field == "inputs":
        return ((name, each) for name, each in _mapping(found).items() if isinstance(name, str))
    return enumerate(found) if isinstance(found, list) else ()


def _tool(value: object, path: FieldPath) -> Iterator[Reference]:
    named = _mapping(value).get("tool")
    if isinstance(named, str) and named:
        yield Reference((*path, "tool"), str(named), "tool", str(named))


def _entries(value: object, field: str, path: FieldPath) -> Iterator[tuple[FieldPath, dict[str, object]]]:
    listed = _mapping(value).get(field)
    for number, each in enumerate(listed if isinstance(listed, list) else ()):
        if isinstance(each, dict):
            yield (*path, field, number), each


def _mapping(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}
