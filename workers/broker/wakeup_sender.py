"""Sends a producer's wake-ups to the broker: at once, or batched by a thread while triggers follow closely.

If the process dies, no trigger is lost: the triggers are rows, and the dispatch sweep sends new wake-ups for them.
"""

import atexit
import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from threading import Event, Lock, Thread
from time import monotonic, sleep

import structlog

from interlock.workers.broker.wakeups import COMMIT_SECONDS, Wakeup, Wakeups

log = structlog.get_logger()


CROWDED_SECONDS = 0.005  # triggers closer together than this are a crowd
LINGER_SECONDS = 0.008  # how long a crowd's wake-ups gather: one round trip for a dozen, off the callers' path
LOOP_LINGER_SECONDS = 0.02  # likewise where an event loop fires: the thread takes time from it
FLUSH_SECONDS = 2.0  # how long closing waits at most


@dataclass
class Recent:
    """When a sender was last used (`time.monotonic`)."""

    at: float = float("-inf")


class WakeupSender:
    """Sends wake-ups. Its thread starts on first use, never before a fork, and does not delay the process's exit.

    The thread ends when the sender is closed or dropped, after sending what is queued.
    """

    def __init__(self, wakeups: Wakeups, *, always_from_thread: bool = False) -> None:
        """Create a sender. Nothing is sent yet.

        Args:
            wakeups: what sends them.
            always_from_thread: never send from the caller's thread, because an event loop must not wait.
        """
        self._wakeups = wakeups
        self._always_from_thread = always_from_thread
        self._linger_seconds = LOOP_LINGER_SECONDS if always_from_thread else LINGER_SECONDS
        self._recent = Recent()
        self._carrier: Carrier | None = None

    def send(self, wakeups: Sequence[Wakeup], *, ahead_since: float | None = None) -> None:
        """Send wake-ups for committed triggers; never raises.

        Args:
            wakeups: the wake-ups.
            ahead_since: when a head-start wake-up was sent, if any. Within 10 ms of that no second one is sent; later
                one is, because the worker no longer looks for the trigger.
        """
        if ahead_since is None or monotonic() - ahead_since > COMMIT_SECONDS:
            if monotonic() - self._recent.at > CROWDED_SECONDS and not self._always_from_thread:
                _safely(partial(self._wakeups.partitions, wakeups))
            else:
                self._enqueue(list(wakeups))
        self._recent.at = monotonic()  # set after sending, or a slow broker looks like low traffic

    def effects(self, rows: Sequence[Wakeup]) -> None:
        """Send wake-ups for committed effects; never raises."""
        send = partial(self._wakeups.effects, rows)
        (self._enqueue if self._always_from_thread else _safely)(send)

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
        if self._recent.at == float("-inf") or (now := monotonic()) - self._recent.at <= CROWDED_SECONDS:
            return None
        self._recent.at = now
        self._enqueue(partial(self._wakeups.ahead, wakeup))
        return now

    def flush(self) -> None:
        """Wait until everything queued is sent, or `FLUSH_SECONDS` have passed."""
        if (carrier := self._carrier) is not None:
            carrier.flush()

    def close(self) -> None:
        """As `flush`, and let the thread end, after sending the rest if it took longer. A later call starts another."""
        with _CHANGING:
            carrier, self._carrier = self._carrier, None
            if carrier is None:
                return
            carrier.end()
        carrier.thread.join(FLUSH_SECONDS)

    def _enqueue(self, wakeups: list[Wakeup] | partial[None]) -> None:
        with _CHANGING:
            if self._carrier is None or not self._carrier.thread.is_alive():  # dead in the child of a fork
                self._carrier = Carrier(self._wakeups, self._linger_seconds, self._recent)
                self._carrier.end_with(self)
            self._carrier.queue.put(wakeups)


@dataclass(eq=False)
class Carrier:
    """A thread that sends what is queued, until None is. It does not hold its sender, so that this can be dropped."""

    wakeups: Wakeups
    linger_seconds: float
    recent: Recent
    queue: "SimpleQueue[list[Wakeup] | partial[None] | Event | None]" = field(default_factory=SimpleQueue)

    def __post_init__(self) -> None:
        self.thread = Thread(target=self._carry, name="interlock-wakeup-sender", daemon=True)
        self.thread.start()
        _CARRYING.add(self)

    def end_with(self, sender: WakeupSender) -> None:
        """Let `end`, which may be called before, be called when the sender is dropped."""
        self.end = weakref.finalize(sender, self.queue.put, None)
        self.end.atexit = False  # then what is queued must be waited for

    def flush(self) -> None:
        """Wait until everything queued is sent, or `FLUSH_SECONDS` have passed."""
        if self.thread.is_alive():
            reached = Event()
            self.queue.put(reached)
            reached.wait(FLUSH_SECONDS)

    def _carry(self) -> None:
        ended = False
        while not ended:
            found = [self.queue.get()]
            if isinstance(found[0], list) and monotonic() - self.recent.at < CROWDED_SECONDS:
                sleep(self.linger_seconds)
            while not self.queue.empty():
                found.append(self.queue.get())
            for part in found:
                if isinstance(part, partial):
                    _safely(part)
            if wakeups := [wakeup for part in found if isinstance(part, list) for wakeup in part]:
                _safely(partial(self.wakeups.partitions, wakeups))
            for part in found:
                if isinstance(part, Event):
                    part.set()
            ended = None in found
        _CARRYING.discard(self)


_CARRYING: set[Carrier] = set()  # whose threads have not ended
_CHANGING = Lock()  # or what is queued while another thread closes its sender would come after the thread's end
os.register_at_fork(before=_CHANGING.acquire, after_in_parent=_CHANGING.release, after_in_child=_CHANGING.release)
os.register_at_fork(after_in_child=_CARRYING.clear)


@atexit.register
def _flush_all() -> None:
    for each in [*_CARRYING]:
        each.flush()


def _safely(send: Callable[[], None]) -> None:
    try:
        send()
    except Exception:  # whatever it is, the triggers are accepted, and later wake-ups must still be sent
        log.exception("wakeups_not_sent")
