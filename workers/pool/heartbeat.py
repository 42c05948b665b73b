"""The heartbeat of one process's worker, from a thread: it goes on while the process works, and ends with it."""

from collections.abc import Callable
from threading import Event, Thread
from uuid import UUID

import structlog

from interlock.db.connection import transaction
from interlock.db.orchestration import workers
from interlock.workers.pool import registration
from interlock.workers.pool.registration import WorkerDescription
from interlock.workers.runtime import Runtime

log = structlog.get_logger()

BEATS = 2  # per heartbeat interval, so that one late heartbeat is not yet a missed one
AGAIN_SECONDS = 1.0  # wait after a fault: PostgreSQL may be starting


class HeartbeatSender:
    """Registers a worker and sends its heartbeats. A worker declared dead registers again, unless it was drained."""

    def __init__(
        self, runtime: Runtime, description: WorkerDescription, before: Callable[[], None] = lambda: None
    ) -> None:
        """Opens nothing. `before` is called ahead of each registration."""
        self._runtime = runtime
        self._description = description
        self._before = before
        self._worker_id: UUID | None = None
        self._enlisted, self._ended = Event(), Event()
        self._dismissed = False
        self._thread = Thread(target=self._go_on, name="interlock-pulse", daemon=True)

    def start(self) -> None:
        """Start the thread. Call it only after a fork, because a child process would not have the thread."""
        self._thread.start()

    def worker_id(self, timeout_seconds: float) -> UUID | None:
        """The worker's id; None if it was not registered in time, or was drained."""
        self._enlisted.wait(timeout_seconds)
        return self._worker_id

    def stop(self, message: str) -> None:
        """Stop the heartbeats and shut the worker down. `message` is the reason, as it follows `worker NAME …`."""
        self._ended.set()
        self._thread.join(AGAIN_SECONDS)
        if self._worker_id is not None:
            registration.leave(self._runtime, self._worker_id, message)

    def _go_on(self) -> None:
        pause = 0.0
        while not self._ended.wait(pause):
            try:
                self.beat()
                pause = self._runtime.settings.heartbeat_seconds / BEATS
            except Exception as fault:  # whatever it is, the next heartbeat may succeed; others notice a silent worker
                log.warning("heartbeat_failed", worker=self._description.name, error=str(fault))
                pause = min(AGAIN_SECONDS, self._runtime.settings.heartbeat_seconds / BEATS)

    def beat(self) -> None:
        """Send one heartbeat, or register the worker if it is not registered."""
        if self._worker_id is not None and not registration.heartbeat(self._runtime, [self._worker_id]):
            self._shut_down(self._worker_id)
        if self._worker_id is None and not self._dismissed:
            self._before()
            self._worker_id = registration.register(self._runtime, self._description, replaces=True)
            self._enlisted.set()

    def _shut_down(self, worker_id: UUID) -> None:
        with transaction(self._runtime.database) as connection:
            self._dismissed = workers.get(connection, [worker_id])[worker_id]["draining"]
        log.warning("worker_shut_down", worker=self._description.name, again=not self._dismissed)
        self._worker_id = None
        if not self._dismissed:
            self._enlisted.clear()
