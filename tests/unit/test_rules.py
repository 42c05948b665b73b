"""A recorded form tells which rule serves which arrow, whatever rules share a trigger and a state."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, pairwise

import pytest

from interlock.workflows.catalogue import catalogue
from interlock.workflows.definition import Definition, T, Transition
from interlock.workflows.versioning.export import checksum, recorded
from interlock.workflows.versioning.rules import Arrow, by_arrow

DEFINITIONS = list(catalogue())


def declared(definition: Definition) -> dict[Arrow, list[str]]:
    found: dict[Arrow, list[str]] = {}
    for move in definition.transitions:
        for source in move.sources:
            found.setdefault((move.trigger, source, move.dest), []).append(marks(move))
    return found


def marks(move: Transition) -> str:
    return f"{move.severity} {[guard.name for guard in move.when]} {[each.name for each in move.effects]}"


@pytest.mark.parametrize("definition", DEFINITIONS, ids=[f"{each.type}-{each.version}" for each in DEFINITIONS])
def test_the_rules_read_are_those_declared(definition: Definition) -> None:
    read = {
        arrow: [f"{rule['severity']} {rule['when']} {[each[0] for each in rule['effects']]}" for rule in rules]
        for arrow, rules in by_arrow(recorded(definition)).items()
    }
    assert read == declared(definition)


def groupings() -> Iterator[tuple[Transition, ...]]:
    """The arrows a, b, c → x and d → y of one trigger, served by two or three rules of different severity."""
    for cuts in ((1,), (2,), (1, 2), ()):
        edges = [0, *cuts, 3]
        parts = ["abc"[one:other] for one, other in pairwise(edges)]
        severities = iter(("info", "warning", "error"))
        yield (*(replace(T("go", tuple(part), "x"), severity=next(severities)) for part in parts), T("go", "d", "y"))


def test_no_two_groupings_of_the_same_arrows_are_recorded_alike() -> None:
    forms = [replace(DEFINITIONS[0], transitions=moves) for moves in groupings()]
    for one, other in combinations(forms, 2):
        assert checksum(one) != checksum(other)
    for each in forms:
        assert {arrow: [rule["severity"] for rule in rules] for arrow, rules in by_arrow(recorded(each)).items()} == {
            (move.trigger, source, move.dest): [move.severity] for move in each.transitions for source in move.sources
        }
