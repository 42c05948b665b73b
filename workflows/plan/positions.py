"""Where every value of a file stands. Kept beside the values, so that these stay plain dicts, lists and texts."""

from __future__ import annotations

from dataclasses import dataclass, field

from workflows.plan.problems import FieldPath, Finding, Problem, dotted

COLUMN_BITS = 25  # a plan of one line, 16 MB long, still has columns


def packed(line: int, column: int) -> int:
    """A place in one integer: a plan of 100,000 tasks has millions. Both count from 0."""
    return line << COLUMN_BITS | column


@dataclass(slots=True)
class Block:
    """A mapping or a list: where it begins, where its keys stand, and the places of what it holds."""

    at: int
    keys: dict[str, int] = field(default_factory=dict)
    parts: dict[str | int, Block | int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Source:
    """A file's values, and where each of them stands."""

    value: object
    place: Block | int

    def line(self, path: FieldPath) -> int:
        """The line, from 1, of the value at `path`."""
        return (self._at(path, at_key=False) >> COLUMN_BITS) + 1

    def placed(self, finding: Finding) -> Problem:
        """The finding with its line and column; where its field is missing, those of what should hold it."""
        at = self._at(finding.path, at_key=finding.at_key)
        line, column = at >> COLUMN_BITS, at & (1 << COLUMN_BITS) - 1
        return Problem(line + 1, column + 1, dotted(finding.path), finding.says, finding.hint)

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
