"""Builds values and positions from parser events, without recursion and within limits: the file is not trusted."""

from dataclasses import dataclass

import yaml

from interlock.workflows.plan.positions import Block, Source, packed
from interlock.workflows.plan.problems import FieldPath, UnlocatedProblem, quoted
from interlock.workflows.plan.yaml_scalars import unquoted

MAX_DEPTH = 50
MAX_NODES = 4_000_000
MAX_REPEATED = 100_000  # nodes that aliases expand to; ten aliases of ten aliases, nine times over, are a billion
Value = dict[str, object] | list[object]


class UnreadableRest(Exception):
    """The rest of the file cannot be parsed or exceeds a limit; problems found before it are still reported."""

    def __init__(self, mark: object, finding: UnlocatedProblem) -> None:
        super().__init__(finding.message)
        self.at = at(mark)
        self.finding = finding


def at(mark: object) -> int:
    """The line and column of a mark of PyYAML's, packed into one integer (`positions.packed`)."""
    return packed(getattr(mark, "line", 0), getattr(mark, "column", 0))


@dataclass(slots=True)
class Frame:
    """A collection being read. A mapping's `key` is None before its key is read, and again after its value."""

    value: Value
    block: Block
    anchor: str | None
    size: int = 1
    awaits_key: bool = True
    key: str | None = None

    def step(self) -> str | int | None:
        """The next step of a path into this block: a list's index or a mapping's key."""
        return len(self.value) if isinstance(self.value, list) else self.key


class Tree:
    """Collects the events of one document; `found` has the problems in the order read."""

    def __init__(self) -> None:
        self.found: list[tuple[int, UnlocatedProblem]] = []
        self.source: Source | None = None
        self._frames: list[Frame] = []
        self._anchors: dict[str, tuple[object, Block | int, int]] = {}
        self._nodes = self._repeated = 0

    def take(self, event: yaml.Event) -> None:
        """Take the next event. Raises `UnreadableRest` when it cannot go on."""
        match event:
            case yaml.ScalarEvent():
                self._count(event)
                self._take_scalar(event)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._count(event)
                self._open({} if isinstance(event, yaml.MappingStartEvent) else [], event)
            case yaml.CollectionEndEvent():
                frame = self._frames.pop()
                self._put(frame.value, frame.block, frame.size, frame.anchor)
            case yaml.AliasEvent():
                self._repeat(event)
            case yaml.DocumentStartEvent() if self.source is not None:
                raise UnreadableRest(
                    event.start_mark, UnlocatedProblem((), "a second document begins: a plan is one document")
                )

    def _count(self, event: yaml.NodeEvent) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise UnreadableRest(
                event.start_mark, UnlocatedProblem((), f"more than {MAX_NODES:,} values: too much for one plan")
            )
        if event.tag is not None:  # type: ignore[attr-defined]  # every event counted here has one
            self._note(at(event.start_mark), f"has a tag, {quoted(event.tag)}", "tags are not read; remove it")  # type: ignore[attr-defined]

    def _take_scalar(self, event: yaml.ScalarEvent) -> None:
        if "\0" in event.value:
            self._note(at(event.start_mark), "holds a NUL character, which no command or database takes")
        value = event.value if event.style else unquoted(event.value)
        self._put(value, at(event.start_mark), 1, event.anchor)

    def _open(self, value: Value, event: yaml.CollectionStartEvent) -> None:
        if len(self._frames) == MAX_DEPTH:
            raise UnreadableRest(
                event.start_mark, UnlocatedProblem(self._path(), f"is nested deeper than {MAX_DEPTH} levels")
            )
        self._frames.append(Frame(value, Block(at(event.start_mark)), event.anchor))

    def _repeat(self, event: yaml.AliasEvent) -> None:
        if event.anchor not in self._anchors:
            finding = UnlocatedProblem(self._path(), f"*{event.anchor} has no anchor, or contains itself")
            raise UnreadableRest(event.start_mark, finding)
        value, place, size = self._anchors[event.anchor]
        self._repeated += size
        if self._repeated > MAX_REPEATED:
            raise UnreadableRest(
                event.start_mark, UnlocatedProblem(self._path(), f"aliases repeat more than {MAX_REPEATED:,} values")
            )
        self._put(value, place, size, None)

    def _put(self, value: object, place: Block | int, size: int, anchor: str | None) -> None:
        if anchor is not None:
            self._anchors[anchor] = value, place, size
        if not self._frames:
            self.source = Source(value, place)
            return
        frame = self._frames[-1]
        frame.size += size
        if isinstance(frame.value, list):
            frame.block.parts[len(frame.value)] = place
            frame.value.append(value)
        elif frame.awaits_key:
            self._name(frame, value, place.at if isinstance(place, Block) else place)
        else:
            if frame.key is not None:
                frame.value[frame.key], frame.block.parts[frame.key] = value, place
            frame.awaits_key, frame.key = True, None

    def _name(self, frame: Frame, key: object, place: int) -> None:
        # For an invalid key `frame.key` stays None, so that its value is read and dropped.
        frame.awaits_key = False
        if not isinstance(key, str):
            self._note(place, "a key must be text")
        elif key in frame.block.keys:
            first = Source(None, frame.block.keys[key]).line(())
            self._note(place, f"{quoted(key)} is given twice; first in line {first}")
        else:
            frame.key = str(key)
            frame.block.keys[frame.key] = place

    def _note(self, place: int, message: str, hint: str = "") -> None:
        self.found.append((place, UnlocatedProblem(self._path(), message, hint)))

    def _path(self) -> FieldPath:
        steps = (frame.step() for frame in self._frames)
        return tuple(step for step in steps if step is not None)
