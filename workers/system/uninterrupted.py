"""Holds back the signals that ask a process to end, for the few lines that must not be left half done."""

import contextlib
import signal
import threading
from collections.abc import Iterator

from interlock.workers.system.ended_by import ASKING, handled


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
    try:
        with handled(ASKING, lambda number, _frame: came.append(number)):
            yield
    finally:
        for number in came:
            signal.raise_signal(number)
