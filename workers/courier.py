"""A producer's hints on their way to the broker: sent at once while triggers are few, from a thread when they crowd.

Nothing is lost with a courier that dies: the triggers are rows, and the dispatch sweep hints again.
"""

import atexit
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Event, Thread
from time import monotonic, sleep
from typing import TypeVar

import structlog

from workers.hints import COMMIT_SECONDS, Hint, Hints

log = structlog.get_logger()

T = TypeVar("T")

CROWDED_SECONDS = 0.005  # triggers that follow each other so soon are a crowd
LINGER_SECONDS = 0.008  # a crowd's hints gather for so long: one round trip for a dozen, off the callers' path
FLUSH_SECONDS = 2.0  # what closing waits for at most


@dataclass(frozen=True, slots=True)
class Early:
    """The hint of a trigger that may still be being committed."""

    hint: Hint


class Courier:
    """Hands hints to the broker. Its thread begins when first needed, never before a fork, and holds no process up."""

    def __init__(self, hints: Hints) -> None:
        self._hints = hints
        self._queue: SimpleQueue[list[Hint] | Early | Event] = SimpleQueue()
        self._thread: Thread | None = None
        self._last = float("-inf")

    def hand(self, hints: list[Hint], *, ahead_since: float | None = None) -> None:
        """Send hints of triggers that are committed; never raises.

        Args:
            hints: theirs.
            ahead_since: when they got a head start, if they did. If that was long ago, the worker no longer looks.
        """
        if ahead_since is None or monotonic() - ahead_since > COMMIT_SECONDS:
            if monotonic() - self._last > CROWDED_SECONDS:
                self._safely(self._hints.lanes, hints)
            else:
                self._enqueue(hints)
        self._last = monotonic()  # not before: who waited for a slow broker must not seem to come seldom

    def head_start(self, hint: Hint) -> float | None:
        """Send the hint of a trigger while it is being committed, unless there is a crowd; never waits, never raises.

        Returns:
            When, by `time.monotonic`; None where none was sent. It is for `hand`, which must follow the commit.
        """
        # The first trigger has connections to open first: its hint would be taken long before its commit.
        if self._last == float("-inf") or (now := monotonic()) - self._last <= CROWDED_SECONDS:
            return None
        self._last = now
        self._enqueue(Early(hint))
        return now

    def flush(self) -> None:
        """Wait until what was handed over is sent, or `FLUSH_SECONDS` have passed."""
        if self._thread is not None and self._thread.is_alive():
            reached = Event()
            self._queue.put(reached)
            reached.wait(FLUSH_SECONDS)

    def _enqueue(self, hints: list[Hint] | Early) -> None:
        if self._thread is None or not self._thread.is_alive():  # dead in the child of a fork
            self._thread = Thread(target=self._carry, name="interlock-courier", daemon=True)
            self._thread.start()
            atexit.register(self.flush)
        self._queue.put(hints)

    def _carry(self) -> None:
        while True:
            found = [self._queue.get()]
            if not isinstance(found[0], Early) and monotonic() - self._last < CROWDED_SECONDS:
                sleep(LINGER_SECONDS)
            while not self._queue.empty():
                found.append(self._queue.get())
            for part in found:
                if isinstance(part, Early):
                    self._safely(self._hints.ahead, part.hint)
            if hints := [hint for part in found if isinstance(part, list) for hint in part]:
                self._safely(self._hints.lanes, hints)
            for part in found:
                if isinstance(part, Event):
                    part.set()

    def _safely(self, send: Callable[[T], None], what: T) -> None:
        try:
            send(what)
        except Exception:  # whatever it is, the triggers are accepted, and those behind it must not wait for ever
            log.exception("hints_not_sent")
