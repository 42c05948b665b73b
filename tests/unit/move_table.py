"""How machines are written out by hand: not derived from the code, which can so be held to them.

One line a rule: `source source -> dest`, then the triggers where they are fixed (`: a b`), then the severity where it
is not info (`! error`). Severities are EVENT-3's by kind of transition and those that a transition's own
text gives: what a person decides is a warning, as a retry and a recovery are.
"""

import re
from dataclasses import dataclass

LINE = re.compile(r"([\w ]+) -> (\w+)(?: : ([\w ]+?))?(?: ! (\w+))?$")


@dataclass(frozen=True)
class Table:
    """A machine as it is written out."""

    source: str
    states: tuple[str, ...]
    terminal: frozenset[str]
    pairs: dict[tuple[str, str], frozenset[str]]
    severities: dict[tuple[str, str], str]


def table(source: str, states: str, terminal: str, moves: str, *, and_all_of: Table | None = None) -> Table:
    """Read one, beside all that another has (`and_all_of`)."""
    pairs = dict(and_all_of.pairs) if and_all_of else {}
    severities = dict(and_all_of.severities) if and_all_of else {}
    for line in moves.strip().splitlines():
        found = LINE.fullmatch(line.strip())
        assert found, line
        sources, entered, triggers, severity = found.groups()
        for left in sources.split():
            pairs[left, entered] = frozenset((triggers or "").split())
            severities[left, entered] = severity or "info"
    listed = (*(and_all_of.states if and_all_of else ()), *states.split())
    ends = (and_all_of.terminal if and_all_of else frozenset()) | set(terminal.split())
    return Table(source, listed, frozenset(ends), pairs, severities)
