"""The position of every value in a file, stored beside the values, which stay plain dicts, lists and texts."""

from __future__ import annotations

from dataclasses import dataclass, field

from interlock.workflows.plan.problems import FieldPath, PlanProblem, UnlocatedProblem, dotted

COLUMN_BITS = 25  # enough columns for a plan of 16 MB in one line


def packed(line: int, column: int) -> int:
    """A position as one integer, to save memory: a plan of 100,000 tasks has millions. Both count from 0."""
    return line << COLUMN_BITS | column


@dataclass(slots=True)
class Block:
    """A mapping or a list: the positions of its beginning, of its keys and of its elements."""

    at: int
    keys: dict[str, int] = field(default_factory=dict)
    parts: dict[str | int, Block | int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Source:
    """A file's values and their positions."""

    value: object
    place: Block | int

    def line(self, path: FieldPath) -> int:
        """The line, from 1, of the value at `path`."""
        return (self._at(path, at_key=False) >> COLUMN_BITS) + 1

    def placed(self, finding: UnlocatedProblem) -> PlanProblem:
        """The finding with its line and column; if its field is missing, those of the enclosing block."""
        at = self._at(finding.path, at_key=finding.at_key)
        line, column = at >> COLUMN_BITS, at & (1 << COLUMN_BITS) - 1
        return PlanProblem(line + 1, column + 1, dotted(finding.path), finding.message, finding.hint)

    def _at(self, path: FieldPath, *, at_key: bool) -> int:
        place, key = self.place, 0
        for depth, step in enumerate(path):
            if not isinstance(place, Block) or step not in place.parts:
                break
            key = place.keys.get(str(step), 0)
            place = place.parts[step]
            if at_key and depth == len(path) - 1:
                return key
        return place.at if isinstance(place, Block) else place
