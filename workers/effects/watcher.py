"""One thread a process that looks after the effects running in it; starting one for each would cost too much."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context, copy_context
from dataclasses import dataclass
from time import monotonic

import structlog

log = structlog.get_logger()


@dataclass(eq=False, slots=True)
class RepeatedCall:
    """What is called every so many seconds, and when it is due."""

    call: Callable[[], bool]
    every_seconds: float
    due: float
    context: Context


class Watcher:
    """Calls what it is given again and again. Its thread begins with the first call, and sleeps while there is none."""

    def __init__(self) -> None:
        """Starts nothing."""
        self._begin()
        os.register_at_fork(after_in_child=self._begin)  # which has no such thread, and perhaps a lock that it held

    def _begin(self) -> None:
        self._looks: set[RepeatedCall] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._wakes = float("inf")  # when the thread looks next by itself, though what it would look at may have ended

    @contextmanager
    def looking(self, call: Callable[[], bool], every_seconds: float) -> Iterator[None]:
        """Call `call` every so many seconds during the block, until it returns False; never after the block."""
        look = RepeatedCall(call, every_seconds, monotonic() + every_seconds, copy_context())
        with self._changed:
            self._looks.add(look)
            if self._thread is None:
                self._thread = threading.Thread(target=self._go_on, name="interlock-effects", daemon=True)
                self._thread.start()
            if look.due < self._wakes:  # else it is awake in time: short effects, one after the other, wake nobody
                self._wakes = look.due
                self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._looks.discard(look)

    def _go_on(self) -> None:
        with self._changed:
            while True:
                for look in [each for each in self._looks if each.due <= monotonic()]:
                    try:
                        again = look.context.run(look.call)
                    except Exception:  # whatever it is, the others are still to be looked after
                        log.exception("look_failed")
                        again = True
                    look.due = monotonic() + look.every_seconds
                    if not again:
                        self._looks.discard(look)
                kept = self._wakes if self._wakes > monotonic() else float("inf")
                self._wakes = min((each.due for each in self._looks), default=kept)
                self._changed.wait(None if self._wakes == float("inf") else max(0.0, self._wakes - monotonic()))


WATCHER = Watcher()
