"""Signals end a process as an exception, also one that Python drops where it comes."""

import os
import signal
import sys
from threading import Event
from threading import enumerate as enumerate_threads
from typing import Any

import pytest

from interlock.workers.system.ended_by import ASKING, ended_by
from interlock.workers.system.uninterrupted import uninterrupted
from tests.signalled import Signalled


def ask(number: signal.Signals, code: int | None = None) -> None:
    with ended_by({number}, code=code):
        os.kill(os.getpid(), number)
        Event().wait(60)


@pytest.mark.parametrize("number", ASKING)
def test_a_signal_ends_what_is_done(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as ended:
        ask(number)
    assert ended.value.code == 128 + number
    with pytest.raises(SystemExit) as ended:
        ask(number, code=0)
    assert ended.value.code == 0
    assert signal.getsignal(number) is before


def test_one_that_python_drops_comes_again() -> None:
    reached = []

    def work() -> None:
        with ended_by({signal.SIGTERM}):
            Signalled()
            reached.append("after it was dropped")
            Event().wait(60)

    with pytest.raises(SystemExit):
        work()
    assert reached


def test_one_that_is_dropped_at_the_end_reaches_nobody_else() -> None:
    got: list[int] = []
    before, others = signal.signal(signal.SIGTERM, lambda number, _: got.append(number)), set(enumerate_threads())
    try:
        with ended_by({signal.SIGTERM}):
            Signalled()
        assert set(enumerate_threads()) <= others, "whoever would send it again is gone"
    finally:
        signal.signal(signal.SIGTERM, before)
    assert got == []


def test_what_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ended_by(), uninterrupted():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_what_else_is_dropped_is_told_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def __del__(self) -> None:
            raise ValueError

    told: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: told.append(dropped.exc_type))
    with ended_by():
        Broken()
    Broken()
    assert told == [ValueError, ValueError]
