"""Where a journal ends: what was durable is never cut, what is torn behind it always is."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.workers.relay.journal_tail import CHUNK, read_tail


def line(position: int, padding: int = 0) -> bytes:
    event = {"event_id": f"evt_{position}", "context": {"xid": 1, "position": position}, "hash": f"{position:064x}"}
    return json.dumps(event | {"metadata": "x" * padding}).encode() + b"\n"


@pytest.fixture
def handle(tmp_path: Path) -> Iterator[int]:
    opened = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield opened
    os.close(opened)


def ends(handle: int, content: bytes, cursor: int) -> tuple[int | None, int]:
    """The position of the last whole event, and how many bytes count."""
    os.pwrite(handle, content, 0)
    tail, whole = read_tail(handle, (1, cursor))
    return (tail.place[1] if tail else None), whole


LINES = b"".join(map(line, range(1, 6)))


@pytest.mark.parametrize("cursor", range(7))
def test_a_whole_file_ends_at_its_end_wherever_the_cursor_is(handle: int, cursor: int) -> None:
    assert ends(handle, LINES, cursor) == (5, len(LINES))


@pytest.mark.parametrize(
    "torn",
    [
        b'{"event_id"',
        b"\0" * 100 + b"\n" + line(8),  # the disk kept a later page and lost one before it
        b"{}\n" + line(7),
        b'{"context": {"xid": "1", "position": 9}, "hash": "", "event_id": ""}\n',
        line(9)[:-1],
    ],
)
def test_what_is_torn_behind_the_cursor_is_cut_with_all_that_follows(handle: int, torn: bytes) -> None:
    for cursor in (3, 5):
        assert ends(handle, LINES + torn, cursor) == (5, len(LINES))


@pytest.mark.parametrize("torn", [line(5), line(4) + line(6)])
def test_what_does_not_ascend_behind_the_cursor_is_cut(handle: int, torn: bytes) -> None:
    assert ends(handle, LINES + torn, 3) == (5, len(LINES))


def test_damage_before_the_cursor_is_not_a_reason_to_cut_what_follows(handle: int) -> None:
    damaged = LINES.replace(b"evt_2", b'e"t_2')
    assert ends(handle, damaged, 4) == (5, len(LINES))


def test_nothing_whole_is_nothing(handle: int) -> None:
    assert ends(handle, line(1)[:20], 0) == (None, 0)


@pytest.mark.parametrize("cursor", [0, 1, 2, 3])
def test_lines_longer_than_a_block_are_read_whole(handle: int, cursor: int) -> None:
    content = b"".join(line(position, padding=3 * CHUNK) for position in (1, 2, 3))
    assert ends(handle, content + b"half", cursor) == (3, len(content))


def test_a_cursor_far_behind_a_long_file_is_not_looked_for_in_all_of_it(
    handle: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.workers.relay.journal_tail.FAR", CHUNK)
    content = b"".join(line(position, padding=1_000) for position in range(1, 1_000))
    assert ends(handle, content + b"half", 0) == (999, len(content))
