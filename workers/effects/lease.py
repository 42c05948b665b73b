"""A lease held for as long as its effect works: renewed when a third of it has passed."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from time import monotonic

import structlog
from sqlalchemy import RowMapping
from sqlalchemy.exc import DBAPIError

from db import effects
from db.connect import retryable, transaction
from workers.runtime import Runtime
from workflows.errors import StaleLease

log = structlog.get_logger()

RENEWALS = 3  # in the time of one lease: two may be missed


class Lease:
    """The lease of one claimed effect, seen from the worker that has it."""

    def __init__(self, runtime: Runtime, claimed: RowMapping) -> None:
        self._runtime = runtime
        self._claimed = claimed
        self._seconds = runtime.settings.effect_lease_seconds
        self._renewed = monotonic()

    @property
    def pause_seconds(self) -> float:
        """How long to leave it alone between two renewals."""
        return self._seconds / RENEWALS

    def tick(self) -> None:
        """Renew it if that is due; cheap enough to be called every second. A database that is away is waited for.

        Raises:
            StaleLease: it is lost, or nobody can tell for longer than it lasts: stop, and report nothing.
        """
        if monotonic() - self._renewed < self.pause_seconds:
            return
        asked = monotonic()
        try:
            with transaction(self._runtime.database) as connection:
                effects.renew(connection, self._claimed, self._seconds)
            self._renewed = asked
        except DBAPIError as error:
            if not retryable(error):
                raise
            if monotonic() - self._renewed > self._seconds:
                raise StaleLease(f"effect {self._claimed['id']} could not be renewed: {error.orig}") from error


@contextmanager
def kept(runtime: Runtime, claimed: RowMapping) -> Iterator[None]:
    """Renew a lease from a thread, for work that has no ticks of its own, such as git's.

    One that is lost is not renewed again; the work goes on, which is harmless, and its report is refused.
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
