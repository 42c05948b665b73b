"""Cursors sort as events were committed, and lead a reader on behind what it has read, also over a restored backup."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.workflows.audit.cursors import cursor_of, named, order_of, place_of
from interlock.workflows.errors import BadInput

PLACES = st.tuples(st.integers(0, 2**39), st.integers(0, 2**62))
RESTORES = st.lists(st.integers(1, 2**39), max_size=3, unique=True).map(sorted)


@given(st.lists(PLACES, min_size=2), RESTORES)
def test_cursors_sort_as_text_and_say_their_place(places: list[tuple[int, int]], restored: list[int]) -> None:
    cursors = [cursor_of(each, restored) for each in sorted(places)]
    assert cursors == sorted(cursors)
    assert [place_of(order_of(each), restored) for each in cursors] == sorted(places)


@given(PLACES, RESTORES, st.integers(1, 2**39))
def test_a_reader_goes_on_with_what_happened_after_a_restore(
    place: tuple[int, int], restored: list[int], first: int
) -> None:
    cursor = cursor_of(place, restored)  # read before the backup was restored, whose next transaction is `first`
    later = sorted({*restored, first})
    if len(later) == len(restored) or later[-1] != first:
        return
    goes_on = place_of(order_of(cursor), later)
    assert goes_on == (place if place[0] < first else (first, 0))
    assert goes_on < (first, 1)
    assert named(first, later) > order_of(cursor)[0]


@pytest.mark.parametrize("cursor", ["", " 1-1", "1-", "1-1-1", "-1", "0x1", "1" * 30])
def test_anything_else_is_no_cursor(cursor: str) -> None:
    with pytest.raises(BadInput, match="is no cursor"):
        order_of(cursor)
