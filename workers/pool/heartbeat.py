"""The heartbeat of one process's worker, from a thread: it goes on while the process works, and ends with it."""

from collections.abc import Callable
from threading import Event, Thread
from uuid import UUID

import structlog

from db import roster
from db.connect import transaction
from workers.crew import member
from workers.crew.member import Enlistment
from workers.runtime import Runtime

log = structlog.get_logger()

BEATS = 2  # in each heartbeat interval: one that is late is not yet missed
AGAIN_SECONDS = 1.0  # after a fault: PostgreSQL may be starting


class Pulse:
    """Enlists a worker and speaks for it until told to stop. Given up for dead it enlists anew, unless dismissed."""

    def __init__(self, runtime: Runtime, enlistment: Enlistment, before: Callable[[], None] = lambda: None) -> None:
        """Nothing is opened yet. `before` is called ahead of each enlisting."""
        self._runtime = runtime
        self._enlistment = enlistment
        self._before = before
        self._worker_id: UUID | None = None
        self._enlisted, self._ended = Event(), Event()
        self._dismissed = False
        self._thread = Thread(target=self._go_on, name="interlock-pulse", daemon=True)

    def start(self) -> None:
        """Begin; never before a fork, for the child would have no thread."""
        self._thread.start()

    def worker_id(self, timeout_seconds: float) -> UUID | None:
        """Who this process is in the crew; None where it is not enlisted in time, or was dismissed."""
        self._enlisted.wait(timeout_seconds)
        return self._worker_id

    def stop(self, says: str) -> None:
        """End it, and have its worker leave: `says` is why, as `worker NAME …` goes on."""
        self._ended.set()
        self._thread.join(AGAIN_SECONDS)
        if self._worker_id is not None:
            member.leave(self._runtime, self._worker_id, says)

    def _go_on(self) -> None:
        pause = 0.0
        while not self._ended.wait(pause):
            try:
                self.beat()
                pause = self._runtime.settings.heartbeat_seconds / BEATS
            except Exception as fault:  # whatever it is, the next beat may succeed; silence is noticed by others
                log.warning("heartbeat_failed", worker=self._enlistment.name, error=str(fault))
                pause = min(AGAIN_SECONDS, self._runtime.settings.heartbeat_seconds / BEATS)

    def beat(self) -> None:
        """One heartbeat: enlist if that is due, else say that the worker is alive."""
        if self._worker_id is not None and not member.heartbeat(self._runtime, [self._worker_id]):
            self._shut_down(self._worker_id)
        if self._worker_id is None and not self._dismissed:
            self._before()
            self._worker_id = member.enlist(self._runtime, self._enlistment, replaces=True)
            self._enlisted.set()

    def _shut_down(self, worker_id: UUID) -> None:
        with transaction(self._runtime.database) as connection:
            self._dismissed = roster.get(connection, [worker_id])[worker_id]["draining"]
        log.warning("worker_shut_down", worker=self._enlistment.name, again=not self._dismissed)
        self._worker_id = None
        if not self._dismissed:
            self._enlisted.clear()
