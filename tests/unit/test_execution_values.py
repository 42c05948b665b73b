"""What a command may say of itself, what is kept of its output, and how its end reads."""

import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.workers.execution.command import Command
from interlock.workers.execution.output import Capture, readable
from interlock.workers.execution.result import Finished
from interlock.workflows.errors import BadInput

ENDED: dict[str, Any] = {
    "exit_code": 0,
    "signal": None,
    "started": True,
    "timed_out": False,
    "cancelled": False,
    "started_at": datetime(2026, 1, 1, tzinfo=UTC),
    "ended_at": datetime(2026, 1, 1, tzinfo=UTC),
    "duration_seconds": 1.5,
    "cpu_seconds": 0.0,
    "max_rss_bytes": None,
    "stdout": "",
    "stderr": "why not",
}


def taken(chunks: list[bytes], limit: int) -> Capture:
    capture = Capture(limit)
    for chunk in chunks:
        capture.take(chunk)
    return capture


@given(chunks=st.lists(st.binary(max_size=40)), limit=st.integers(0, 60))
def test_a_capture_keeps_the_two_ends_and_counts_what_lay_between(chunks: list[bytes], limit: int) -> None:
    whole, capture = b"".join(chunks), taken(chunks, limit)
    assert capture.left_out_bytes == max(0, len(whole) - limit)
    if len(whole) <= limit:
        assert capture.text() == readable(whole)
    else:
        head, tail = whole[: limit - limit // 2], whole[len(whole) - limit // 2 :]
        assert capture.text() == f"{readable(head)}\n[{len(whole) - limit} bytes left out]\n{readable(tail)}"


@given(chunk=st.binary(min_size=1, max_size=200), times=st.integers(1, 300), limit=st.integers(0, 100))
def test_a_capture_never_holds_more_than_twice_its_limit_and_a_chunk(chunk: bytes, times: int, limit: int) -> None:
    capture = taken([chunk] * times, limit)
    assert len(capture._head) + len(capture._tail) <= 2 * limit + len(chunk)


@given(st.binary())
def test_readable_text_can_be_stored_whatever_the_bytes(raw: bytes) -> None:
    text = readable(raw)
    assert "\0" not in text
    text.encode("utf-8")  # a lone surrogate would raise


def test_text_in_utf8_stays_as_it_is() -> None:
    assert readable("naïve · 漢字 🦀\n".encode()) == "naïve · 漢字 🦀\n"


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"argv": ()}, "argv"),
        ({"argv": ("", "-l")}, "argv"),
        ({"argv": "ls -l"}, "argv"),
        ({"argv": ("ls", 1)}, "argv"),
        ({"argv": ("ls", "-l"), "shell": True}, "argv"),
        ({"timeout_seconds": 0}, "timeout_seconds"),
        ({"timeout_seconds": float("nan")}, "timeout_seconds"),
        ({"grace_seconds": -1}, "grace_seconds"),
        ({"grace_seconds": float("inf")}, "grace_seconds"),
        ({"output_limit_bytes": -1}, "output_limit_bytes"),
        ({"memory_bytes": -5}, "memory_bytes"),
        ({"cpu_seconds": 0}, "cpu_seconds"),
        ({"open_files": 0}, "open_files"),
        ({"nice": -1}, "nice"),
    ],
)
def test_a_command_that_contradicts_itself_is_refused_by_the_fields_name(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(BadInput, match=f"^{named}:"):
        Command(**{"argv": ("true",), "cwd": Path("/"), **wrong})


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        ({}, "exit code 0"),
        ({"exit_code": 3}, "exit code 3"),
        ({"exit_code": 139, "signal": signal.SIGSEGV}, "ended by SIGSEGV"),
        ({"exit_code": 168, "signal": 40}, "ended by signal 40"),
        ({"timed_out": True}, "timed out after 1.5 s"),
        ({"cancelled": True}, "cancelled after 1.5 s"),
        ({"exit_code": 127, "started": False}, "why not"),
    ],
)
def test_an_end_reads_as_a_line(ending: dict[str, Any], reason: str) -> None:
    assert Finished(**{**ENDED, **ending}).reason == reason


@pytest.mark.parametrize(
    "ending", [{"exit_code": 1}, {"timed_out": True}, {"cancelled": True}, {"started": False, "exit_code": 127}]
)
def test_only_a_command_that_came_to_its_own_end_succeeds(ending: dict[str, Any]) -> None:
    assert Finished(**ENDED).succeeded()
    assert not Finished(**{**ENDED, **ending}).succeeded()
    assert not Finished(**{**ENDED, "started": False, "exit_code": 127}).succeeded(expected=(0, 127))
    assert Finished(**{**ENDED, "exit_code": 1}).succeeded(expected=(0, 1))
