"""Migrate parcels and other instances to another version of their definition."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from interlock.db.audit import verify
from interlock.db.operations.handovers import Choice
from interlock.workers.definitions.handover import HandoverMoves, settle
from interlock.workers.definitions.instance_migration import Migrated, Migration, migrate
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.runtime import Runtime
from interlock.workflows.forms.start_log import StartLog

ALL_PARCELS = Choice("parcel", "1.0.0")
HANDING = OverrideOrder("ann", "to Temporal")
Dba = "psycopg.Connection[Any]"


def move(runtime: Runtime, old: str = "1.0.0", new: str = "1.1.0", type_: str = "parcel", **said: Any) -> Migrated:
    return migrate(
        runtime.database, runtime.catalogue, Migration(type_, old, new, **{"by": "ann", "reason": "as agreed"} | said)
    )


def sound(runtime: Runtime) -> None:
    verdict = verify.verify(runtime.database)
    assert verdict.ok, verdict.problems


def whys(done: Migrated) -> dict[str, tuple[str, ...]]:
    return {each.entity_id: each.why for each in done.stays}


def due_in(dba: Dba, parcel: UUID) -> list[timedelta]:
    rows = dba.execute(
        "SELECT not_before - now() FROM trigger_requests WHERE workflow_id = %s AND status = 'scheduled' ORDER BY seq",
        (parcel,),
    )
    return [row[0] for row in rows.fetchall()]


def confirmed(runtime: Runtime, *started: UUID) -> HandoverMoves:
    """Record of frozen parcels that they were started elsewhere."""
    return settle(runtime, ALL_PARCELS, HANDING, StartLog(started={*started}), back=False)


def given_back(runtime: Runtime, *begun: UUID) -> HandoverMoves:
    """Take frozen parcels back, but those whose start has begun."""
    return settle(runtime, ALL_PARCELS, HANDING, StartLog(begun={*begun}), back=True)
