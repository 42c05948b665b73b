"""The sweep `brakes`: announces brakes, and puts them on what goes back and forth (BRAKE-3, BRAKE-8)."""

from sqlalchemy import Connection
from uuid_utils.compat import uuid7

from interlock.db.connection import transaction
from interlock.db.core import brakes, history, requests
from interlock.db.core.brakes import Bounce
from interlock.db.core.request_rows import by_state, internal, own_id
from interlock.workers.engine import creation
from interlock.workers.engine.creation import Birth
from interlock.workers.runtime import Runtime
from interlock.workflows.catalogue import Catalogue

CURSOR = "bounces"
EVENTS = 10_000  # of one batch
BATCHES = 20  # of one run of the sweep; the next goes on
ANNOUNCED = 500  # brakes of one run


def sweep(runtime: Runtime) -> int:
    """Put brakes on instances that go back and forth, and announce all that are not; returns the announcements.

    Raises:
        DBAPIError: the database is away; the next period tries again.
    """
    if runtime.settings.bounce_limit:
        for _ in range(BATCHES):
            with transaction(runtime.database) as connection:
                read = _look(connection, runtime)
            if read < EVENTS:
                break
    with transaction(runtime.database) as connection:
        found = brakes.unannounced(connection, limit=ANNOUNCED)
        rows = [
            internal(
                own_id(each["id"], each["version"], "announce"),
                each["id"],
                "announce",
                by="system",
                right=by_state(each["version"]),
                origin="timer",
            )
            for each in found
        ]
        accepted = requests.accept(connection, rows)
        partitions = requests.partitions_due(connection) if accepted else ()
    runtime.wakeups.partitions(partitions)
    return len(accepted)


def _look(connection: Connection, runtime: Runtime) -> int:
    """Look at a batch of events that no sweep has looked at; returns their number."""
    chosen = runtime.settings
    looked = brakes.bouncing(
        connection,
        after=history.cursor(connection, CURSOR),
        most=chosen.bounce_limit,
        seconds=chosen.bounce_seconds,
        limit=EVENTS,
    )
    if looked.read:
        history.advance(connection, CURSOR, looked.place)
    # An instance gets one brake, whichever way it bounces.
    first = {each["workflow_id"]: each for each in looked.bounces}
    births = [
        _birth(runtime.catalogue, each, most=chosen.bounce_limit, seconds=chosen.bounce_seconds)
        for each in first.values()
    ]
    creation.deliver(connection, births)
    return looked.read


def _birth(catalogue: Catalogue, found: Bounce, *, most: int, seconds: float) -> Birth:
    reason = (
        f"{found['workflow_type']} {found['entity_id']} went {found['times']} times from {found['from_state']} to "
        f"{found['to_state']} in {seconds:g} s, more than {most}"
    )
    return Birth(
        definition=catalogue.get("brake"),
        entity_id=f"instance-{uuid7().hex[-8:]}",
        project=found["project"],
        created_by="system",
        context={
            "kind": "instance",
            "name": str(found["workflow_id"]),
            "from": found["from_state"],
            "to": found["to_state"],
            "times": found["times"],
            "most": most,
            "per_seconds": seconds,
            "reason": reason,
        },
    )
