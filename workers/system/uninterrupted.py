"""Holds back the signals that ask a process to end, for the few lines that must not be left half done."""

import contextlib
import signal
import threading
from collections.abc import Iterator

from interlock.workers.system.ended_by import ASKING


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold back the signals that `ended_by` takes during a block; those that came take effect at its end.

    Other than with a blocked signal, a program that is started meanwhile gets them as usual. Outside the main thread,
    which alone handles signals, there is nothing to hold back.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    asking = [each for each in ASKING if signal.getsignal(each) is not signal.SIG_IGN]
    before = {each: signal.signal(each, lambda number, _frame: came.append(number)) for each in asking}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        for number in came:
            signal.raise_signal(number)
