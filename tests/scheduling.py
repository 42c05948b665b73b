"""Schedules for tests: created in the past, so that their times have come, or now."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg

from interlock.db.connection import transaction
from interlock.db.core import requests
from interlock.workers.client.client import Client
from interlock.workers.schedules.creating import firing
from interlock.workers.schedules.firing import fire_due
from tests.waiting import eventually

SECONDLY = {"every_seconds": 1}
MINUTELY = {"cron": "* * * * *"}


def born(
    dba: "psycopg.Connection[Any]",
    name: str,
    ago: timedelta,
    *,
    times: Mapping[str, Any],
    does: Mapping[str, Any],
    catch_up: Mapping[str, Any] | None = None,
    by: str = "ann",
) -> UUID:
    """A schedule as if it had been created so long ago, and nothing had run since.

    One of each minute has the rest of this minute, 10 s at least, until one time more is due.
    """
    if times is MINUTELY:
        eventually(lambda: datetime.now(UTC).second < 50)
    made, context = uuid4(), {"times": times, "does": does} | ({"catch_up": catch_up} if catch_up else {})
    dba.execute(
        "INSERT INTO workflow_instances (id, workflow_type, definition_version, current_state, entity_id, project,"
        " context, created_by, created_at)"
        " VALUES (%s, 'schedule', '1.0.0', 'active', %s, 'default', %s, %s, now() - %s)",
        (made, name, json.dumps(context), by, ago),
    )
    return made


def fires(client: Client, ref: str | UUID, trigger: str = "design_complete", **data: Any) -> dict[str, Any]:
    """What a schedule does that fires a trigger."""
    return firing(client, ref, trigger, data)


def fired(client: Client, schedule: UUID) -> list[dict[str, Any]]:
    """The requests that a schedule made, in the order of its times."""
    with transaction(client.runtime.database) as connection:
        ids = connection.exec_driver_sql(
            "SELECT request_id FROM interlock.trigger_requests WHERE starts_with(request_id, %s) ORDER BY request_id",
            (f"interlock:schedule:{schedule}:",),
        ).scalars()
        found = requests.by_ids(connection, list(ids))
    return [dict(found[each]) for each in sorted(found)]


def row(dba: "psycopg.Connection[Any]", schedule: UUID) -> tuple[Any, ...] | None:
    """settled, next_at, fired, last_due of a schedule."""
    return dba.execute(
        "SELECT settled, next_at, fired, last_due FROM schedules WHERE schedule_id = %s", (schedule,)
    ).fetchone()


def make_due(dba: "psycopg.Connection[Any]") -> None:
    """Let all schedules be looked at by the next sweep."""
    dba.execute("UPDATE schedules SET next_at = now() WHERE next_at IS NOT NULL")


def swept(client: Client) -> int:
    """Fire what is due; returns how many times were fired."""
    return fire_due(client.runtime)


def stamps(client: Client, schedule: UUID) -> list[datetime]:
    """The times that a schedule fired."""
    return [
        datetime.strptime(each["request_id"].rpartition(":")[2], "%Y%m%dT%H%M%S%z") for each in fired(client, schedule)
    ]
