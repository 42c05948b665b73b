"""Sends a producer's wake-ups to the broker: at once, or batched by a thread while triggers follow closely.

If the process dies, no trigger is lost: the triggers are rows, and the dispatch sweep sends new wake-ups for them.
"""

import atexit
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from queue import SimpleQueue
from threading import Event, Thread
from time import monotonic, sleep

import structlog

from interlock.workers.broker.wakeups import COMMIT_SECONDS, Wakeup, Wakeups

log = structlog.get_logger()


CROWDED_SECONDS = 0.005  # triggers closer together than this are a crowd
LINGER_SECONDS = 0.008  # how long a crowd's wake-ups gather: one round trip for a dozen, off the callers' path
LOOP_LINGER_SECONDS = 0.02  # likewise where an event loop fires: the thread takes time from it
FLUSH_SECONDS = 2.0  # how long closing waits at most


class WakeupSender:
    """Sends wake-ups. Its thread starts on first use, never before a fork, and does not delay the process's exit."""

    def __init__(self, wakeups: Wakeups, *, always_from_thread: bool = False) -> None:
        """Create a sender. Nothing is sent yet.

        Args:
            wakeups: what sends them.
            always_from_thread: never send from the caller's thread, because an event loop must not wait.
        """
        self._wakeups = wakeups
        self._always_from_thread = always_from_thread
        self._linger_seconds = LOOP_LINGER_SECONDS if always_from_thread else LINGER_SECONDS
        self._queue: SimpleQueue[list[Wakeup] | partial[None] | Event] = SimpleQueue()
        self._thread: Thread | None = None
        self._last = float("-inf")

    def send(self, wakeups: Sequence[Wakeup], *, ahead_since: float | None = None) -> None:
        """Send wake-ups for committed triggers; never raises.

        Args:
            wakeups: the wake-ups.
            ahead_since: when a head-start wake-up was sent, if any. Within 10 ms of that no second one is sent; later
                one is, because the worker no longer looks for the trigger.
        """
        if ahead_since is None or monotonic() - ahead_since > COMMIT_SECONDS:
            if monotonic() - self._last > CROWDED_SECONDS and not self._always_from_thread:
                self._safely(partial(self._wakeups.partitions, wakeups))
            else:
                self._enqueue(list(wakeups))
        self._last = monotonic()  # set after sending, or a slow broker looks like low traffic

    def effects(self, rows: Sequence[Wakeup]) -> None:
        """Send wake-ups for committed effects; never raises."""
        send = partial(self._wakeups.effects, rows)
        (self._enqueue if self._always_from_thread else self._safely)(send)

    def ahead(self, wakeups: Iterable[Wakeup]) -> None:
        """Send head-start wake-ups for triggers being committed, one per partition. Never waits, never raises."""
        for wakeup in {wakeup["partition"]: wakeup for wakeup in wakeups if wakeup["status"] == "pending"}.values():
            self._enqueue(partial(self._wakeups.ahead, wakeup))

    def head_start(self, wakeup: Wakeup) -> float | None:
        """Send a trigger's wake-up during its commit, unless triggers follow closely. Never waits, never raises.

        Returns:
            The `time.monotonic` of sending, to pass to `send` after the commit; None if nothing was sent.
        """
        # The first trigger must open connections first, so a worker would take its wake-up long before its commit.
        if self._last == float("-inf") or (now := monotonic()) - self._last <= CROWDED_SECONDS:
            return None
        self._last = now
        self._enqueue(partial(self._wakeups.ahead, wakeup))
        return now

    def flush(self) -> None:
        """Wait until everything queued is sent, or `FLUSH_SECONDS` have passed."""
        if self._thread is not None and self._thread.is_alive():
            reached = Event()
            self._queue.put(reached)
            reached.wait(FLUSH_SECONDS)

    def _enqueue(self, wakeups: list[Wakeup] | partial[None]) -> None:
        if self._thread is None or not self._thread.is_alive():  # dead in the child of a fork
            self._thread = Thread(target=self._carry, name="interlock-wakeup-sender", daemon=True)
            self._thread.start()
            atexit.register(self.flush)
        self._queue.put(wakeups)

    def _carry(self) -> None:
        while True:
            found = [self._queue.get()]
            if isinstance(found[0], list) and monotonic() - self._last < CROWDED_SECONDS:
                sleep(self._linger_seconds)
            while not self._queue.empty():
                found.append(self._queue.get())
            for part in found:
                if isinstance(part, partial):
                    self._safely(part)
            if wakeups := [wakeup for part in found if isinstance(part, list) for wakeup in part]:
                self._safely(partial(self._wakeups.partitions, wakeups))
            for part in found:
                if isinstance(part, Event):
                    part.set()

    def _safely(self, send: Callable[[], None]) -> None:
        try:
            send()
        except Exception:  # whatever it is, the triggers are accepted, and later wake-ups must still be sent
            log.exception("wakeups_not_sent")
