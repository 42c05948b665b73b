"""Signals that ask a process to end, as an exception: what is half done is cleaned up first."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from types import FrameType

ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # Ctrl-C, a supervisor, a closed terminal
AGAIN_SECONDS = 0.05


@contextmanager
def handled(signals: Collection[signal.Signals], handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Let a handler take signals during a block, but for those that this process ignores (`nohup`)."""
    before = {each: signal.signal(each, handler) for each in signals if signal.getsignal(each) is not signal.SIG_IGN}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@contextmanager
def ended_by(signals: Collection[signal.Signals] = ASKING, *, code: int | None = None) -> Iterator[None]:
    """During a block these signals raise `SystemExit`.

    Python ignores an exception that is raised within a `__del__`, or while an unfinished generator is cleaned up, and a
    signal may arrive just then. Such a signal is sent again after 50 ms, unless the block has ended.

    Args:
        signals: which; ignored ones stay ignored (`handled`).
        code: the exit code; None: 128 and the signal's number, as shells report it.
    """
    came: list[int] = []
    timers: list[threading.Timer] = []

    def end(number: int, _frame: FrameType | None) -> None:
        came.append(number)
        sys.exit(128 + number if code is None else code)

    def once_more(dropped: "sys.UnraisableHookArgs") -> None:
        if came and issubclass(dropped.exc_type, SystemExit):
            timers.append(again := threading.Timer(AGAIN_SECONDS, os.kill, (os.getpid(), came[-1])))
            again.daemon = True
            again.start()
        else:
            hook(dropped)

    with handled(signals, end):
        hook, sys.unraisablehook = sys.unraisablehook, once_more
        try:
            yield
        finally:
            try:
                for again in timers:  # what is sent now would reach whoever had the signal before
                    again.cancel()
                    again.join()
            finally:
                sys.unraisablehook = hook
