"""Keeps an effect's lease for as long as the effect works: renews it when a third of its time has passed."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import Any

import structlog
from sqlalchemy.exc import DBAPIError

from interlock.db.connection import retryable, transaction
from interlock.db.core import effects
from interlock.db.core.effects import ClaimedEffect
from interlock.workers.effects.watcher import WATCHER
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import StaleLease

log = structlog.get_logger()

RENEWALS = 3  # renewals during one lease: two of them may fail


class Lease:
    """The lease of one claimed effect, as its worker renews it.

    Attributes:
        superseded: whether its instance has moved on, as of the last renewal.
    """

    def __init__(self, runtime: Runtime, claimed: ClaimedEffect, *, most_seconds: float = float("inf")) -> None:
        """Hold the lease of `claimed`; at most `most_seconds` pass between two renewals."""
        self._runtime = runtime
        self._claimed = claimed
        self._seconds = runtime.settings.effect_lease_seconds
        self._renewed = monotonic()
        self.pause_seconds = min(self._seconds / RENEWALS, most_seconds)
        self.superseded = False

    def tick(self) -> None:
        """Renew the lease if it is due; cheap enough to be called every second. Waits for an unreachable database.

        Raises:
            StaleLease: the lease is lost, or could not be renewed for longer than it lasts: stop, and report nothing.
        """
        if monotonic() - self._renewed >= self.pause_seconds:
            self.renew()

    def renew(self, progress: Mapping[str, Any] | None = None) -> None:
        """Renew the lease now, and record progress. Waits and raises as `tick` does."""
        requested_at = monotonic()
        try:
            with transaction(self._runtime.database) as connection:
                self.superseded = effects.renew(connection, self._claimed, self._seconds, progress)
            self._renewed = requested_at
        except DBAPIError as error:
            if not retryable(error):
                raise
            if monotonic() - self._renewed > self._seconds:
                raise StaleLease(f"effect {self._claimed['id']} could not be renewed: {error.orig}") from error


@contextmanager
def renewed_lease(runtime: Runtime, claimed: ClaimedEffect) -> Iterator[None]:
    """Renew a lease from a thread, for work without ticks of its own, such as git's.

    A lost lease is not renewed again. The work goes on, which is harmless: its report is refused.
    """
    lease = Lease(runtime, claimed)

    def keep() -> bool:
        try:
            lease.tick()
        except StaleLease as stale:
            log.warning("stale_lease", error=str(stale))
            return False
        return True

    with WATCHER.looking(keep, lease.pause_seconds):
        yield
