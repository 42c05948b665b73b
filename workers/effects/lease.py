"""Keeps an effect's lease for as long as the effect works: renews it when a third of its time has passed."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from time import monotonic

import structlog
from sqlalchemy import RowMapping
from sqlalchemy.exc import DBAPIError

from interlock.db.connection import retryable, transaction
from interlock.db.core import effects
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import StaleLease

log = structlog.get_logger()

RENEWALS = 3  # renewals during one lease: two of them may fail


class Lease:
    """The lease of one claimed effect, as its worker renews it."""

    def __init__(self, runtime: Runtime, claimed: RowMapping) -> None:
        self._runtime = runtime
        self._claimed = claimed
        self._seconds = runtime.settings.effect_lease_seconds
        self._renewed = monotonic()

    @property
    def pause_seconds(self) -> float:
        """The time between two renewals."""
        return self._seconds / RENEWALS

    def tick(self) -> None:
        """Renew the lease if it is due; cheap enough to be called every second. Waits for an unreachable database.

        Raises:
            StaleLease: the lease is lost, or could not be renewed for longer than it lasts: stop, and report nothing.
        """
        if monotonic() - self._renewed < self.pause_seconds:
            return
        requested_at = monotonic()
        try:
            with transaction(self._runtime.database) as connection:
                effects.renew(connection, self._claimed, self._seconds)
            self._renewed = requested_at
        except DBAPIError as error:
            if not retryable(error):
                raise
            if monotonic() - self._renewed > self._seconds:
                raise StaleLease(f"effect {self._claimed['id']} could not be renewed: {error.orig}") from error


@contextmanager
def renewed_lease(runtime: Runtime, claimed: RowMapping) -> Iterator[None]:
    """Renew a lease from a thread, for work without ticks of its own, such as git's.

    A lost lease is not renewed again. The work goes on, which is harmless: its report is refused.
    """
    lease, done = Lease(runtime, claimed), threading.Event()
    keeper = threading.Thread(
        target=copy_context().run, args=(_keep, lease, done), name=f"lease-{claimed['id']}", daemon=True
    )
    keeper.start()
    try:
        yield
    finally:
        done.set()
        keeper.join()


def _keep(lease: Lease, done: threading.Event) -> None:
    while not done.wait(lease.pause_seconds):
        try:
            lease.tick()
        except StaleLease as stale:
            log.warning("stale_lease", error=str(stale))
            return
