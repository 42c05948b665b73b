"""Schedules: what they fire, in whose name and by which right, and what becomes of them (docs/spec/schedule.md)."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.errors import CheckViolation, InsufficientPrivilege

from interlock.db.audit.verify import verify
from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.client.client import Client
from interlock.workers.overrides.narrowing import narrow
from interlock.workers.overrides.operators import revoke
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.runtime import Runtime
from interlock.workers.schedules.creating import create_schedule, standing, standings, submitting
from interlock.workflows.errors import (
    AlreadyExists,
    BadInput,
    NotYours,
    UnknownInstance,
    UnknownTrigger,
    UnknownWorkflow,
)
from interlock.workflows.plan.read import read_plan
from tests import databases
from tests.driving import applied, drain_all, state, trail
from tests.rights import grant
from tests.scheduling import MINUTELY, SECONDLY, born, fired, fires, make_due, row, stamps, swept
from tests.waiting import eventually

pytestmark = pytest.mark.integration
HOUR = timedelta(hours=1)
PLAN = b"name: nightly\nworkstreams: [{id: build, tasks: [{id: compile, shell: 'true'}]}]\n"


@pytest.fixture
def outsider(servers: Servers, database_url: str, make_runtime: Callable[..., Runtime]) -> Iterator[Client]:
    """A client whose login is a member of `interlock_client` only."""
    return Client(make_runtime(database_url=databases.as_client(servers, database_url), owner_url=None))


def failure(client: Client, schedule: UUID) -> str:
    """The reason of a schedule's newest failure."""
    drain_all(client.runtime)
    return str(standing(client, schedule).row["failure"])


def swept_failure(client: Client, schedule: UUID) -> str | None:
    """Fire what is due; the reason of a schedule's newest failure, once it has one."""
    swept(client)
    return said if (said := failure(client, schedule)) != "None" else None


# What it does ------------------------------------------------------------------------------------------------------


def test_a_trigger_is_fired_at_its_times_in_its_creators_name(
    client: Client, story: UUID, dba: "psycopg.Connection[Any]"
) -> None:
    made = create_schedule(client, "each", SECONDLY, fires(client, story, note="hello"), by="ann")["id"]
    assert swept(client) == 0, "none of its times has come"
    eventually(lambda: swept(client), timeout=5)
    drain_all(client.runtime)
    (event,) = client.history(story)
    assert (event["triggered_by"], event["trigger"], event["metadata"]) == ("ann", "design_complete", {"note": "hello"})
    assert (event["authority"], event["proof"]) == ("anyone", f"schedule:{made}")
    settled, next_at, count, last_due = row(dba, made) or ()
    assert last_due <= settled < next_at <= settled + timedelta(seconds=1)
    assert count == len(fired(client, made))
    assert all(due > datetime.now(UTC) - timedelta(seconds=5) for due in stamps(client, made))


def test_an_instance_is_created_at_each_time_under_a_name_that_has_the_time(
    client: Client, dba: "psycopg.Connection[Any]"
) -> None:
    does = {"create": {"type": "story", "name": "standup %due", "context": {"estimate": 3}}}
    made = born(dba, "standups", timedelta(minutes=3), times=MINUTELY, does=does, catch_up={"policy": "all"})
    assert swept(client) == 3
    rows = dba.execute("SELECT entity_id, created_by, context FROM workflow_instances WHERE workflow_type = 'story'")
    found = sorted(rows.fetchall())
    assert [(by, context) for _, by, context in found] == [("ann", {"estimate": 3})] * 3
    assert found[0][0] == f"standup {standing(client, made).row['last_due'] - timedelta(minutes=2):%Y%m%dT%H%M%SZ}"


def test_a_plan_is_submitted_at_its_times_as_it_was_then(
    client: Client, dba: "psycopg.Connection[Any]", tmp_path: Path
) -> None:
    (tmp_path / "plan.yaml").write_bytes(PLAN)
    does = submitting(client, read_plan(PLAN), tmp_path, by="ann", priority=7)
    (tmp_path / "plan.yaml").unlink()
    made = born(dba, "nightly", timedelta(minutes=1), times=MINUTELY, does=does)
    assert swept(client) == 1
    drain_all(client.runtime)
    (run,) = dba.execute(
        "SELECT entity_id, created_by, current_state FROM workflow_instances WHERE workflow_type = 'run'"
    )
    assert run == (f"nightly-{standing(client, made).row['last_due']:%Y%m%dT%H%M%SZ}", "ann", "running")
    assert dba.execute("SELECT priority FROM runs").fetchall() == [(7,)]


def test_an_approval_holds_what_a_schedule_fires(client: Client, dba: "psycopg.Connection[Any]") -> None:
    sprint = client.create("sprint", "P-1")["id"]
    made = born(dba, "begin", timedelta(minutes=1), times=MINUTELY, does=fires(client, sprint, "start"))
    swept(client)
    drain_all(client.runtime)
    (request,) = fired(client, made)
    assert request["status"] == "waiting"
    applied(client, request["held_by"], "approve", by="bob")
    assert state(client, sprint) == "active"
    assert client.history(sprint)[0]["proof"] == f"approval:{request['held_by']}"


# Missed times ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("catch_up", "count"),
    [
        ({"policy": "skip"}, 1),
        ({"policy": "one"}, 1),
        ({"policy": "all"}, 60),
        ({"policy": "all", "within_seconds": 600}, 10),
    ],
    ids=str,
)
def test_missed_times_are_skipped_or_made_up_for(
    client: Client, story: UUID, dba: "psycopg.Connection[Any]", catch_up: dict[str, Any], count: int
) -> None:
    made = born(dba, "each", HOUR, times=MINUTELY, does=fires(client, story), catch_up=catch_up)
    assert swept(client) == count
    assert swept(client) == 0
    due = stamps(client, made)
    assert due == [due[-1] - timedelta(minutes=number) for number in reversed(range(count))]
    assert datetime.now(UTC) - due[-1] < timedelta(seconds=90)


def test_one_missed_time_is_made_up_for_however_long_ago_and_none_by_skip(
    client: Client, story: UUID, dba: "psycopg.Connection[Any]"
) -> None:
    yearly = {"cron": f"0 0 {datetime.now(UTC) - timedelta(days=40):%d %m} *"}
    one, none = (
        born(dba, policy, timedelta(days=800), times=yearly, does=fires(client, story), catch_up={"policy": policy})
        for policy in ("one", "skip")
    )
    assert swept(client) == 1
    (due,) = stamps(client, one)
    assert timedelta(days=39) < datetime.now(UTC) - due < timedelta(days=42)
    assert not fired(client, none)


def test_the_times_of_a_pause_are_not_made_up_for(client: Client, story: UUID, dba: "psycopg.Connection[Any]") -> None:
    made = born(dba, "each", HOUR, times=MINUTELY, does=fires(client, story), catch_up={"policy": "all"})
    applied(client, made, "pause", by="ann")
    assert swept(client) == 0
    applied(client, made, "resume", by="ann")
    make_due(dba)
    assert swept(client) == 0
    assert standing(client, made).following[0] > datetime.now(UTC)
    assert trail(client, made) == ["pause", "resume"]


# Who may -----------------------------------------------------------------------------------------------------------


def test_only_its_creator_pauses_resumes_and_ends_it(
    client: Client, story: UUID, dba: "psycopg.Connection[Any]"
) -> None:
    made = create_schedule(client, "each", SECONDLY, fires(client, story), by="ann")["id"]
    for trigger in ("pause", "end"):
        refused = client.fire(made, trigger, by="bob")
        drain_all(client.runtime)
        (settled,) = client.wait([refused.request_id])
        assert settled.status == "rejected"
        assert "only who created the schedule" in (settled.result or {})["message"]
    applied(client, made, "pause", "resume", "end", by="ann")
    assert row(dba, made) is None
    assert state(client, made) == "ended"


@pytest.mark.parametrize("trigger", ["gate_passed", "gate_started"])
def test_what_a_part_of_interlock_alone_may_fire_no_schedule_fires(client: Client, trigger: str) -> None:
    gate = client.create("test_gate", "G-1", context={"gate_type": "UNIT"})["id"]
    with pytest.raises(NotYours, match="only what is open to anyone or to operators"):
        create_schedule(client, "cheat", SECONDLY, fires(client, gate, trigger), by="ann")


def test_no_schedule_decides_an_approval(client: Client) -> None:
    approval = client.create("approval", "A-1", context={"quorum": 1})["id"]
    with pytest.raises(NotYours, match="only what is open to anyone or to operators"):
        create_schedule(client, "yes", SECONDLY, fires(client, approval, "approve"), by="ann")


def operators_trigger(client: Client) -> dict[str, Any]:
    worker = client.create("worker", "W-1", context={"worker_type": "x", "capabilities": []})["id"]
    return fires(client, worker, "suspend", reason="at night")


def test_an_operators_schedule_acts_as_an_operator_as_long_as_he_is_one(
    client: Client, runtime: Runtime, dba: "psycopg.Connection[Any]"
) -> None:
    does = operators_trigger(client)
    with pytest.raises(NotYours, match="ann is not an operator"):
        create_schedule(client, "night", SECONDLY, does, by="ann")
    grant(client, "ann", "bob")
    made = born(dba, "night", timedelta(seconds=1), times=SECONDLY, does=does)
    assert swept(client)
    drain_all(runtime)
    request = fired(client, made)[0]
    assert (request["authority"], request["proof"].partition(":")[0]) == ("operator", "grant")
    revoke(runtime, "ann", by="bob", reason="she left")
    count = len(fired(client, made))
    assert "ann is not an operator" in eventually(lambda: swept_failure(client, made), timeout=5)
    assert len(fired(client, made)) == count


def test_a_client_schedules_what_it_may_do_itself_and_nothing_else(
    client: Client, outsider: Client, runtime: Runtime, dba: "psycopg.Connection[Any]"
) -> None:
    grant(client, "ann")
    story = outsider.create("story", "S-1")["id"]
    create_schedule(outsider, "stories", SECONDLY, {"create": {"type": "story", "name": "s-%due"}}, by="ann")
    made = create_schedule(outsider, "design", SECONDLY, fires(outsider, story), by="ann")["id"]
    for does in (
        operators_trigger(client),
        {"create": {"type": "worker", "name": "w-%due", "context": {"worker_type": "x", "capabilities": []}}},
        submitting(outsider, read_plan(PLAN), Path(), by="ann"),
    ):
        with pytest.raises(NotYours, match="the login interlock_client"):
            create_schedule(outsider, "refused", SECONDLY, does, by="ann")
    eventually(lambda: swept(client) and fired(client, made), timeout=5)
    assert dba.execute("SELECT count(*) FROM workflow_instances WHERE entity_id LIKE 's-%'").fetchone() > (0,)
    assert dba.execute("SELECT DISTINCT login FROM schedules").fetchall() == [("interlock_client",)]


def test_what_became_an_operators_trigger_a_clients_schedule_no_longer_fires(
    client: Client, outsider: Client, runtime: Runtime, dba: "psycopg.Connection[Any]"
) -> None:
    """Its login can be no operator but itself: nobody gains a right by waiting for a node to act."""
    grant(client, "ann")
    story = outsider.create("story", "S-1")["id"]
    made = create_schedule(outsider, "each", SECONDLY, fires(outsider, story, reason="why"), by="ann")["id"]
    narrow(runtime, "story", "design_complete", ["operator"], OverrideOrder("ann", "only leads"))
    said = eventually(lambda: swept_failure(client, made), timeout=5)
    assert "the login interlock_client, which created the schedule, can be no operator but itself" in said
    assert fired(client, made) == []
    assert trail(client, story) == []


def test_the_engines_own_login_cannot_fire_in_a_schedules_name_what_it_does_not_fire(
    client: Client, story: UUID, engine: "psycopg.Connection[Any]", dba: "psycopg.Connection[Any]"
) -> None:
    made = born(dba, "each", HOUR, times=MINUTELY, does=fires(client, story, note="x"))
    other = client.create("story", "S-2")["id"]
    past, future = (f"interlock:schedule:{made}:{year}0101T000000Z" for year in (2020, 2090))
    now = f"interlock:schedule:{made}:{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    forged = (
        "INSERT INTO trigger_requests (request_id, fingerprint, workflow_id, trigger, triggered_by, metadata, origin,"
        " proof) VALUES (%s, '', %s, %s, %s, %s, 'timer', %s)"
    )
    right = (now, story, "design_complete", "ann", '{"note": "x"}', f"schedule:{made}")
    for place, value in enumerate((past, other, "block", "bob", '{"note": "y"}', f"schedule:{uuid4()}")):
        with pytest.raises(InsufficientPrivilege):
            engine.execute(forged, (*right[:place], value, *right[place + 1 :]))
    with pytest.raises(InsufficientPrivilege):
        engine.execute(forged, (future, *right[1:]))
    engine.execute(forged, right)
    applied(client, made, "pause", by="ann")
    with pytest.raises(InsufficientPrivilege, match="may not fire"):
        engine.execute(forged, (f"{now[:-3]}00Z" if now[-3:] != "00Z" else f"{now[:-3]}01Z", *right[1:]))
    with pytest.raises(Exception, match="login of schedules cannot change"):
        engine.execute("UPDATE schedules SET login = 'somebody'")


# What fails --------------------------------------------------------------------------------------------------------


def test_what_cannot_be_fired_is_an_event_of_its_schedule_and_stops_no_other(
    client: Client, runtime: Runtime, dba: "psycopg.Connection[Any]"
) -> None:
    does = {"create": {"type": "story", "name": "s-%due"}}
    first, second = (born(dba, name, timedelta(minutes=1), times=MINUTELY, does=does) for name in ("a", "b"))
    fine = born(dba, "c", timedelta(minutes=1), times=MINUTELY, does=fires(client, client.create("story", "S")["id"]))
    assert swept(client) == 2
    drain_all(runtime)
    assert len(fired(client, fine)) == 1
    failed = next(each for each in (first, second) if trail(client, each))
    assert trail(client, failed) == ["firing_failed"]
    assert "exists in project default already" in failure(client, failed)
    assert ("failed", failure(client, failed)) in [
        (e["status"], e["message"]) for e in standing(client, failed).firings
    ]
    assert (row(dba, failed) or ())[2] == 0
    assert state(client, failed) == "active"


def test_a_schedule_ends_with_the_instance_that_it_fires_at(
    client: Client, runtime: Runtime, dba: "psycopg.Connection[Any]"
) -> None:
    sprint = client.create("operator_grant", "G-1", context={"name": "eve"})
    made = client.create("pr_review", "PR-1", context={"author": "ann"})["id"]
    assert sprint
    schedule = born(dba, "each", HOUR, times=MINUTELY, does=fires(client, made, "start_review"))
    applied(client, made, "start_review", "approve", by="bob")
    merge = client.fire(made, "merge", by="bob")
    drain_all(runtime)
    (held,) = client.wait([merge.request_id])
    assert held.status == "waiting"
    approval = dba.execute("SELECT id FROM workflow_instances WHERE workflow_type = 'approval'").fetchone() or ()
    applied(client, approval[0], "approve", by="carol")
    assert state(client, made) == "merged"
    assert swept(client) == 0
    drain_all(runtime)
    assert (state(client, schedule), trail(client, schedule)) == ("ended", ["lapse"])
    assert failure(client, schedule) == "the instance that it fires at has ended"


def test_terms_that_raw_sql_wrote_and_nobody_can_read_end_their_schedule(
    client: Client, runtime: Runtime, dba: "psycopg.Connection[Any]"
) -> None:
    made = born(dba, "odd", HOUR, times={"cron": "61 * * * *"}, does={"create": {"type": "story", "name": "s-%due"}})
    assert swept(client) == 0
    drain_all(runtime)
    assert state(client, made) == "ended"
    assert "its terms cannot be read: cron '61 * * * *': bad minute" in failure(client, made)


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ({}, "either cron or every_seconds"),
        ({"cron": "* * * *"}, "five fields"),
        ({"cron": "* * * * * *"}, "five fields"),
        ({"cron": "0 25 * * *"}, "bad hour"),
        ({"cron": "0 0 31 2 *"}, "bad day-of-month"),
        ({"cron": "* * * * *", "time_zone": "Mars/Olympus"}, "time_zone 'Mars/Olympus' is unknown"),
        ({"cron": "* * * * *", "time_zone": "Europe"}, "time_zone 'Europe' is unknown"),
        ({"cron": "* * * * *", "time_zone": "../../etc/passwd"}, "is unknown"),
        ({"cron": "* * * * *", "time_zone": "Australia/Lord_Howe"}, "moved by half an hour"),
        ({"every_seconds": 0}, "whole number from 1"),
        ({"every_seconds": 1.5}, "whole number from 1"),
        ({"every_seconds": True}, "whole number from 1"),
        ({"every_seconds": 60, "start": "2026-01-01"}, "start must be an instant with a time zone"),
        ({"every_seconds": 60, "time_zone": "UTC"}, "unknown field 'time_zone'"),
    ],
    ids=str,
)
def test_times_that_are_none_are_refused_with_the_reason(
    client: Client, story: UUID, times: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        create_schedule(client, "odd", times, fires(client, story), by="ann")
    with pytest.raises(BadInput, match="times must be"):
        client.create("schedule", "odd", context={"times": times, "does": fires(client, story)}, by="ann")


@pytest.mark.parametrize(
    ("does", "message"),
    [
        ({}, "one of fire, create and submit"),
        ({"create": {"type": "story", "name": "same"}}, "name must contain %due"),
        ({"create": {"type": "nonsense", "name": "%due"}}, "no workflow type 'nonsense'"),
        ({"create": {"type": "schedule", "name": "%due"}}, "a schedule cannot create a schedule"),
        ({"create": {"type": "sprint@9.0.0", "name": "%due"}}, "no version '9.0.0'"),
        ({"fire": {"instance": "S-1", "trigger": "block"}}, "the UUID of an instance"),
        ({"fire": {"instance": str(UUID(int=0)), "trigger": "block"}}, "has no instance"),
        ({"submit": {"plan": {}, "directory": "here"}}, "absolute path"),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_refused_with_the_reason(client: Client, does: dict[str, Any], message: str) -> None:
    with pytest.raises((BadInput, UnknownInstance, UnknownWorkflow), match=message):
        create_schedule(client, "odd", SECONDLY, does, by="ann")


def test_raw_sql_cannot_have_a_schedule_create_a_schedule(dba: "psycopg.Connection[Any]") -> None:
    with pytest.raises(CheckViolation, match="a schedule cannot create a schedule"):
        born(dba, "odd", HOUR, times=SECONDLY, does={"create": {"type": "schedule@1.0.0", "name": "%due"}})


def test_data_that_no_trigger_can_have_is_refused(client: Client, story: UUID) -> None:
    with pytest.raises(BadInput, match=r"data\.operator is reserved"):
        fires(client, story, operator="ann")


def test_a_trigger_that_its_instance_does_not_have_is_refused(client: Client, story: UUID) -> None:
    with pytest.raises(UnknownTrigger):
        fires(client, story, "dance")
    does = {"fire": {"instance": str(story), "trigger": "dance"}}
    with pytest.raises(BadInput, match="story has no trigger dance"):
        create_schedule(client, "odd", SECONDLY, does, by="ann")


# What is kept ------------------------------------------------------------------------------------------------------


def test_history_stays_whole_and_a_lost_row_is_noticed(
    client: Client, runtime: Runtime, story: UUID, dba: "psycopg.Connection[Any]"
) -> None:
    made = born(dba, "each", HOUR, times=MINUTELY, does=fires(client, story))
    swept(client)
    drain_all(runtime)

    def found() -> list[str]:
        return [str(each) for each in verify(runtime.database).problems]

    assert found() == []
    dba.execute("DELETE FROM schedules")
    assert any("schedules has lost it" in each for each in found())
    assert str(made) in str(found())


def test_its_name_is_not_free_again_and_it_is_listed_until_it_ends(client: Client, story: UUID) -> None:
    create_schedule(client, "each", {"every_seconds": 90}, fires(client, story), by="ann")
    assert [each.row["name"] for each in standings(client, None)] == ["each"]
    applied(client, "schedule/each", "end", by="ann")
    assert standings(client, None) == []
    assert [each.row["state"] for each in standings(client, None, ended=True)] == ["ended"]
    with pytest.raises(AlreadyExists):
        create_schedule(client, "each", {"every_seconds": 90}, fires(client, story), by="ann")
