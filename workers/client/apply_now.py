"""Applies an accepted trigger in this process, without waiting for a worker, and returns its outcome."""

from time import monotonic, sleep
from uuid import UUID

from sqlalchemy import RowMapping

from interlock.db.connection import transaction
from interlock.db.core import requests
from interlock.workers.client.partition_drainer import Drain
from interlock.workers.client.receipts import SETTLED, NotSettled
from interlock.workers.runtime import Runtime

PATIENCE_SECONDS = 30.0
PAUSE_SECONDS = 0.05


def settle(runtime: Runtime, request_id: str, instance_id: UUID) -> RowMapping:
    """Apply an accepted trigger and whatever is due before it.

    Returns:
        The request's row, with its outcome.

    Raises:
        NotSettled: it is in retry and was not applied within 30 s. It will be applied later.
    """
    until = monotonic() + PATIENCE_SECONDS
    while True:
        Drain(runtime).partition(requests.partition_of(instance_id))
        with transaction(runtime.database) as connection:
            found = requests.by_ids(connection, [request_id])[request_id]
        if found["status"] in SETTLED:
            return found
        if monotonic() > until:
            raise NotSettled(
                f"{request_id} was not applied within {PATIENCE_SECONDS:g} s: {found['error'] or found['status']}"
            )
        sleep(PAUSE_SECONDS)
