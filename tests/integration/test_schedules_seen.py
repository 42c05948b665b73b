"""Schedules that are late or cannot be fired are seen: in `stuck`, `doctor` and the metrics (docs/spec/schedule.md)."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from interlock.workers.client.client import Client
from interlock.workers.operations.checks.instances import check_schedules
from interlock.workers.operations.metrics import read
from interlock.workers.runtime import Runtime
from tests.driving import drain_all
from tests.scheduling import MINUTELY, SECONDLY, born, fired, fires, make_due, swept
from tests.stuck import found, look
from tests.tampering import unprotected

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ann")]
Dba = "psycopg.Connection[Any]"
UNKNOWN = 600  # more than one batch


def states(runtime: Runtime) -> list[tuple[str, str]]:
    return [(each.level, each.message) for each in check_schedules(runtime)]


def counted(runtime: Runtime) -> tuple[float, float]:
    """The gauge: late, failing."""
    series = read(runtime)
    return series["interlock_schedules", ("late",)], series["interlock_schedules", ("failing",)]


def test_schedule_12_one_that_is_late_is_seen_until_it_is_fired(client: Client, runtime: Runtime, dba: Any) -> None:
    story = client.create("story", "S", project="default")["id"]
    late = born(dba, "late", timedelta(minutes=5), times=MINUTELY, does=fires(client, story))
    waits = found(runtime, late)
    assert waits.reason.startswith("it is due since ")
    assert waits.reason.endswith("but no sweep has fired it: is beat running?")
    assert 290 < waits.seconds < 400, "since it is due"
    ((status, message),) = states(runtime)
    assert (status, message.partition(", due")[0]) == ("fail", "1 late schedule")
    assert counted(runtime) == (1, 0)
    assert swept(client) == 1
    assert look(runtime, type_="schedule") == []
    assert states(runtime) == [("ok", "1 schedule, none late or failing")]
    assert counted(runtime) == (0, 0)


def test_schedule_12_one_that_fails_is_seen_until_it_is_fired_again(client: Client, runtime: Runtime, dba: Any) -> None:
    does = {"create": {"type": "story", "name": "s-%due"}}
    ids = [born(dba, name, timedelta(minutes=1), times=MINUTELY, does=does) for name in ("a", "b")]
    swept(client)
    drain_all(runtime)
    (waits,) = look(runtime, type_="schedule")
    assert waits.workflow_id in ids
    assert waits.reason.startswith("it has not been fired since ")
    assert "exists in project default already" in waits.reason
    assert waits.command.startswith(f"interlock schedule show {waits.entity_id}")
    assert ("warn", "1 schedule could not be fired the last time") in states(runtime)
    assert counted(runtime) == (0, 1)
    dba.execute(
        "UPDATE schedules SET settled = settled - interval '3 min' WHERE schedule_id = %s", (waits.workflow_id,)
    )
    dba.execute("DELETE FROM schedules WHERE schedule_id <> %s", (waits.workflow_id,))
    with unprotected(dba, "workflow_instances"):
        dba.execute("DELETE FROM workflow_instances WHERE workflow_type = 'story'")
    make_due(dba)
    assert swept(client) == 1
    assert look(runtime, type_="schedule") == []
    assert counted(runtime) == (0, 0)


def test_schedule_13_what_fires_at_unknown_definitions_hides_no_other(
    client: Client, runtime: Runtime, dba: Any
) -> None:
    story: UUID = client.create("story", "S", project="default")["id"]
    other: UUID = client.create("story", "other", project="default")["id"]
    for number in range(UNKNOWN):
        born(dba, f"u-{number}", timedelta(minutes=5), times=SECONDLY, does=fires(client, other))
    known = born(dba, "known", timedelta(minutes=2), times=MINUTELY, does=fires(client, story))
    dba.execute("ALTER TABLE workflow_instances DISABLE TRIGGER ALL")
    dba.execute(
        "INSERT INTO workflow_definitions (type, version, checksum, body, initial_state)"
        " SELECT type, '9.0.0', checksum, body, initial_state FROM workflow_definitions WHERE type = 'story' LIMIT 1"
    )
    dba.execute("INSERT INTO definition_states VALUES ('story', '9.0.0', 'analysis', false)")
    dba.execute("UPDATE workflow_instances SET definition_version = '9.0.0' WHERE id = %s", (other,))
    assert swept(client) == 1
    assert len(fired(client, known)) == 1
    waits = found(runtime, "u-1")
    assert "but this release does not know story 9.0.0, at which it fires" in waits.reason
    assert counted(runtime) == (UNKNOWN, 0)
