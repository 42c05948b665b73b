"""Know what became of a trigger: apply its lane here instead of waiting for somebody else to."""

from time import monotonic, sleep
from uuid import UUID

from sqlalchemy import RowMapping

from db import requests
from db.connect import transaction
from workers.client import SETTLED, NotSettled
from workers.lanes import Drain
from workers.runtime import Runtime

PATIENCE_SECONDS = 30.0
PAUSE_SECONDS = 0.05


def settle(runtime: Runtime, request_id: str, instance_id: UUID) -> RowMapping:
    """Apply an accepted trigger, with what is due before it; its request as it then stands.

    Raises:
        NotSettled: it is in retry, and was not applied within 30 s; it will be.
    """
    until = monotonic() + PATIENCE_SECONDS
    while True:
        Drain(runtime).lane(requests.lane_of(instance_id))
        with transaction(runtime.database) as connection:
            found = requests.by_ids(connection, [request_id])[request_id]
        if found["status"] in SETTLED:
            return found
        if monotonic() > until:
            raise NotSettled(
                f"{request_id} was not applied in {PATIENCE_SECONDS:g} s: {found['error'] or found['status']}"
            )
        sleep(PAUSE_SECONDS)
