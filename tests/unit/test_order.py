"""How tests are put in order (`tests/order.py`)."""

import re
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import ROOT
from tests.order import COMPUTING, LONG, WAITING, arranged

names = st.sampled_from([*LONG, *(f"short-{number}" for number in range(60))])
groups = st.dictionaries(names, st.integers(1, 40), min_size=1).map(
    lambda sizes: {name: [(name, number) for number in range(size)] for name, size in sizes.items()}
)


def test_what_is_said_to_take_long_exists() -> None:
    written = "".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    marked = set(re.findall(r'xdist_group\("(\w+)"\)', written))
    assert [name for name in LONG if name not in marked and not (ROOT / name).is_file()] == []


@given(groups, st.integers(1, 8))
def test_each_test_is_there_once_and_a_long_group_stays_together(
    made: dict[str, list[tuple[str, int]]], processes: int
) -> None:
    ordered = arranged(made, processes)
    assert Counter(ordered) == Counter(each for tests in made.values() for each in tests)
    for name in LONG.keys() & made.keys():
        begin = ordered.index((name, 0))
        assert ordered[begin : begin + len(made[name])] == made[name]


def test_each_part_begins_with_long_groups_that_wait_or_compute_and_ends_with_short_ones() -> None:
    made = {name: [name] * 3 for name in LONG} | {f"short-{number}": [f"short-{number}"] * 20 for number in range(200)}
    ordered = arranged(made, 4)
    size = len(ordered) // 4
    for number in range(4):
        part = ordered[number * size : (number + 1) * size]
        kind = COMPUTING if number % 2 else WAITING
        long = [name for name in part if name in LONG]
        assert part[: len(long)] == long
        assert kind.keys() >= set(long)
        assert abs(sum(kind[name] for name in {*long}) - sum(kind.values()) / 2) < 30
