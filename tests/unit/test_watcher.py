"""One thread looks after every effect of a process, for as long as each runs, and after a fork, too."""

import os
import signal
import threading
from collections.abc import Callable

import pytest

from interlock.workers.effects.watcher import Watcher
from tests.waiting import eventually

SOON_SECONDS, PATIENCE_SECONDS = 0.005, 20.0


@pytest.fixture
def watcher() -> Watcher:
    return Watcher()


def counting(times: int, *, result: bool = True) -> tuple[Callable[[], bool], threading.Event, list[int]]:
    """Something to call, an event that is set at its `times`-th call, and its calls."""
    reached, calls = threading.Event(), []

    def call() -> bool:
        calls.append(threading.get_ident())
        if len(calls) == times:
            reached.set()
        return result

    return call, reached, calls


def test_several_are_looked_after_by_one_thread_until_their_blocks_end(watcher: Watcher) -> None:
    one, one_reached, one_calls = counting(3)
    other, other_reached, other_calls = counting(3)
    with watcher.looking(one, SOON_SECONDS):
        with watcher.looking(other, SOON_SECONDS):
            assert one_reached.wait(PATIENCE_SECONDS)
            assert other_reached.wait(PATIENCE_SECONDS)
        ended = len(other_calls)
        again, reached, _ = counting(2)
        with watcher.looking(again, SOON_SECONDS):
            assert reached.wait(PATIENCE_SECONDS)
        assert len(other_calls) == ended, "never after its block"
    assert {*one_calls} == {*other_calls}
    assert threading.get_ident() not in one_calls


def test_what_is_due_sooner_wakes_a_thread_that_waits_for_later(watcher: Watcher) -> None:
    late, _, calls = counting(1)
    soon, reached, _ = counting(1)
    with watcher.looking(late, 1e6), watcher.looking(soon, SOON_SECONDS):
        assert reached.wait(PATIENCE_SECONDS)
    assert calls == []


def test_one_that_has_seen_enough_is_not_called_again(watcher: Watcher) -> None:
    enough, reached, calls = counting(1, result=False)
    other, later, _ = counting(5)
    with watcher.looking(enough, SOON_SECONDS):
        assert reached.wait(PATIENCE_SECONDS)
        with watcher.looking(other, SOON_SECONDS):
            assert later.wait(PATIENCE_SECONDS)
    assert len(calls) == 1


def test_one_that_fails_is_called_again_and_does_not_stop_the_others(watcher: Watcher) -> None:
    failed = threading.Event()

    def fail() -> bool:
        failed.set()
        raise ValueError("on purpose")

    with watcher.looking(fail, SOON_SECONDS):
        assert failed.wait(PATIENCE_SECONDS)
        other, reached, _ = counting(3)
        failed.clear()
        with watcher.looking(other, SOON_SECONDS):
            assert reached.wait(PATIENCE_SECONDS)
        assert failed.wait(PATIENCE_SECONDS)


def test_a_fork_has_a_thread_of_its_own_whatever_the_parents_holds(watcher: Watcher) -> None:
    holding, forked = threading.Event(), threading.Event()

    def hold() -> bool:
        holding.set()
        return not forked.wait(PATIENCE_SECONDS)

    with watcher.looking(hold, SOON_SECONDS):
        assert holding.wait(PATIENCE_SECONDS)
        if not (pid := os.fork()):
            signal.alarm(int(PATIENCE_SECONDS))  # ends a child that waits for a lock for ever
            call, reached, _ = counting(1)
            with watcher.looking(call, SOON_SECONDS):
                os._exit(0 if reached.wait(PATIENCE_SECONDS) else 1)
        forked.set()
    assert eventually(lambda: (done := os.waitpid(pid, os.WNOHANG))[0] and done) == (pid, 0)
