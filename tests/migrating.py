"""Migrate parcels and other instances to another version of their definition."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from interlock.db.audit import verify
from interlock.workers.definitions.instance_migration import Migrated, Migration, migrate
from interlock.workers.runtime import Runtime

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
