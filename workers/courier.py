"""A producer's hints on their way to the broker: sent at once while triggers are few, from a thread when they crowd.

Nothing is lost with a courier that dies: the triggers are rows, and the dispatch sweep hints again.
"""

import atexit
from queue import SimpleQueue
from threading import Event, Thread
from time import monotonic, sleep

import structlog

from workers.hints import Hint, Hints

log = structlog.get_logger()

CROWDED_SECONDS = 0.005  # triggers that follow each other so soon are a crowd
LINGER_SECONDS = 0.008  # a crowd's hints gather for so long: one round trip for a dozen, off the callers' path
FLUSH_SECONDS = 2.0  # what closing waits for at most


class Courier:
    """Hands hints to the broker. Its thread begins when first needed, never before a fork, and holds no process up."""

    def __init__(self, hints: Hints) -> None:
        self._hints = hints
        self._queue: SimpleQueue[list[Hint] | Event] = SimpleQueue()
        self._thread: Thread | None = None
        self._last = float("-inf")

    def hand(self, hints: list[Hint]) -> None:
        """Send hints of triggers that are committed; never raises."""
        if monotonic() - self._last > CROWDED_SECONDS:
            self._send(hints)
        else:
            self._enqueue(hints)
        self._last = monotonic()  # not before: who waited for a slow broker must not seem to come seldom

    def head_start(self, hint: Hint) -> None:
        """Send the hint of a trigger while it is being committed, unless there is a crowd; never waits, never raises.

        A worker that is quicker than the commit finds nothing; it has lowered the lane's flag before it looked, so
        `hand`, which must follow the commit, finds it down and sends another. Where there are no flags nothing is sent.
        """
        # The first trigger has connections to open first: its hint would be taken long before its commit.
        first = self._last == float("-inf")
        if not first and self._hints.flagged and monotonic() - self._last > CROWDED_SECONDS:
            self._enqueue([hint])

    def flush(self) -> None:
        """Wait until what was handed over is sent, or `FLUSH_SECONDS` have passed."""
        if self._thread is not None and self._thread.is_alive():
            reached = Event()
            self._queue.put(reached)
            reached.wait(FLUSH_SECONDS)

    def _enqueue(self, hints: list[Hint]) -> None:
        if self._thread is None or not self._thread.is_alive():  # dead in the child of a fork
            self._thread = Thread(target=self._carry, name="interlock-courier", daemon=True)
            self._thread.start()
            atexit.register(self.flush)
        self._queue.put(hints)

    def _carry(self) -> None:
        while True:
            found = [self._queue.get()]
            crowd = monotonic() - self._last < CROWDED_SECONDS
            if crowd:
                sleep(LINGER_SECONDS)
            while not self._queue.empty():
                found.append(self._queue.get())
            if hints := [hint for part in found if not isinstance(part, Event) for hint in part]:
                self._send(hints, ahead=not crowd and len(hints) == 1)
            for part in found:
                if isinstance(part, Event):
                    part.set()

    def _send(self, hints: list[Hint], *, ahead: bool = False) -> None:
        try:
            if ahead:
                self._hints.ahead(hints[0])
            else:
                self._hints.lanes(hints)
        except Exception:  # whatever it is, those behind it must not wait for ever
            log.exception("hints_not_sent", hints=len(hints))
