"""Metrics: counted once whatever dies, the same as history says, and readable by Prometheus."""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Connection
from sqlalchemy.orm import Session

from interlock.beat.schedule import SCHEDULE
from interlock.db.connection import transaction
from interlock.db.core import counters, definitions, effects, requests
from interlock.db.core.counters import Series
from interlock.workers.audit import backup_drills
from interlock.workers.client.client import Client
from interlock.workers.engine.trigger_request import Firing
from interlock.workers.operations.metrics import read
from interlock.workers.overrides.tasks import complete_task
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.relay.destinations import Counters
from interlock.workers.relay.relay import relay
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from tests import machines
from tests.backup_stubs import stub_backup
from tests.doctoring import examined
from tests.driving import UP_TO_REVIEW, applied, drain_all, make_due, swept
from tests.nodes import node
from tests.rights import grant
from tests.running import Stage
from tests.waiting import eventually

pytestmark = pytest.mark.integration
OWN = ("tests.machines",)
Dba = "psycopg.Connection[Any]"


@pytest.fixture
def own(knowing: Callable[..., Runtime]) -> Iterator[Client]:
    """A client that knows `turnstile`, whose guard can break, and gives up after two attempts."""
    yield Client(knowing(*OWN, max_attempts=2))
    machines.broken.clear()


def counted(client: Client) -> dict[Series, float]:
    """What the exporter says once the relay has been there."""
    relay(client.runtime.database, [Counters()])
    return read(client.runtime)


def value(client: Client, name: str, *labels: str) -> float:
    return counted(client)[name, labels]


def history_says(dba: Dba) -> dict[Series, float]:
    """The same, asked of history itself in another way: whole tables, no cursor, no counter."""
    said: Counter[Series] = Counter()
    entered: dict[UUID, Any] = dict(dba.execute("SELECT id, created_at FROM workflow_instances").fetchall())
    for workflow_id, type_, source, dest, at in dba.execute(
        "SELECT workflow_id, workflow_type, from_state, to_state, created_at FROM workflow_transitions ORDER BY seq"
    ):
        said["state_transitions_total", (type_, source, dest)] += 1
        seconds = (at - entered[workflow_id]).total_seconds()
        bound = next((name for name in counters.BOUND_NAMES if seconds <= float(name)), "")
        said["state_transition_duration_seconds_bucket", (type_, source, bound)] += 1
        entered[workflow_id] = at
    for type_, state in dba.execute("SELECT workflow_type, current_state FROM workflow_instances"):
        said["entity_state", (type_, state)] += 1
    for type_, code in dba.execute(
        "SELECT workflow_type, result->>'code' FROM trigger_requests r JOIN workflow_instances i ON i.id = workflow_id"
        " WHERE status = 'rejected'"
    ):
        said[counters.FAILED_TRANSITIONS, (type_, code)] += 1
    return dict(said)


def kept_counts(found: Mapping[Series, float]) -> dict[Series, float]:
    """Of what was read, what `history_says` knows too, zeros left out."""
    names = ("state_transitions_total", "state_transition_duration_seconds_bucket", "entity_state")
    wanted = (*names, counters.FAILED_TRANSITIONS)
    return {series: number for series, number in found.items() if series[0] in wanted and number}


# Counting -----------------------------------------------------------------------------------------------------------


def test_moves_populations_and_times_are_those_of_history(client: Client, stories: list[UUID], dba: Dba) -> None:
    applied(client, stories[0], *UP_TO_REVIEW)
    applied(client, stories[1], "block", "unblock")
    found = counted(client)
    assert kept_counts(found) == history_says(dba)
    assert found["state_transitions_total", ("story", "analysis", "design")] == 1
    assert found["entity_state", ("story", "analysis")] == 3
    assert found["entity_state", ("story", "done")] == 0


def test_instances_count_from_their_birth_and_until_they_leave(client: Client, stories: list[UUID], dba: Dba) -> None:
    assert read(client.runtime)["entity_state", ("story", "analysis")] == 5  # no relay, no sweep yet
    assert client.create_many([client.birth("story", "S-0", project=client.show("S-0")["project"])]) == 0
    assert value(client, "entity_state", "story", "analysis") == 5
    dba.execute("ALTER TABLE workflow_instances DISABLE TRIGGER kept")  # as the archive will take it away
    dba.execute("DELETE FROM workflow_instances WHERE id = %s", (stories[0],))
    assert value(client, "entity_state", "story", "analysis") == 4


def test_a_birth_that_is_rolled_back_was_none(client: Client, project: str) -> None:
    with Session(client.runtime.database) as session:
        client.create("story", "S-1", project=project, session=session)
        session.rollback()
    assert value(client, "entity_state", "story", "analysis") == 0


def test_folding_changes_no_value_and_leaves_no_note(client: Client, stories: list[UUID], dba: Dba) -> None:
    applied(client, stories[0], "block")
    client.fire(stories[0], "submit_pr", by="a")
    drain_all(client.runtime)
    before = kept_counts(counted(client))
    assert swept(client.runtime, "metrics") == 2  # a birth, a refusal
    assert dba.execute("SELECT count(*) FROM metric_deltas").fetchone() == (0,)
    assert kept_counts(read(client.runtime)) == before


def test_a_batch_that_was_counted_and_not_committed_counts_once(client: Client, stories: list[UUID], dba: Dba) -> None:
    class Dies(Counters):
        def carry(self, connection: Connection, events: Any) -> None:
            super().carry(connection, events)
            raise ConnectionError("killed")

    applied(client, stories[0], *UP_TO_REVIEW)
    with pytest.raises(ConnectionError):
        relay(client.runtime.database, [Dies()])
    assert kept_counts(counted(client)) == history_says(dba)


def test_an_override_counts_once_though_its_moves_come_in_several_batches(
    runtime: Runtime, dba: Dba, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.workers.relay.relay.BATCH", 1)
    stage = Stage(runtime, dba)
    stage.submit({"w": {}}, {"t": {"workstream": "w"}})
    stage.start()
    stage.begin("t")
    grant(stage.client, "ann")
    assert len(complete_task(runtime, str(stage.ids["t"]), OverrideOrder("ann", "seen to it")).moves) == 2
    assert value(stage.client, "manual_state_overrides_total", "task", "ann") == 1


def test_refusals_are_counted_by_type_and_reason(client: Client, project: str) -> None:
    client.create("pr_review", "P-1", project=project, context={"author": "ann"})
    for trigger, by in (("merge", "bob"), ("start_review", "bob"), ("approve", "ann")):
        client.fire("P-1", trigger, by=by)
    drain_all(client.runtime)
    assert value(client, counters.FAILED_TRANSITIONS, "pr_review", "no_such_transition") == 1
    assert value(client, counters.FAILED_TRANSITIONS, "pr_review", "guard") == 1
    assert value(client, counters.FAILED_TRANSITIONS, "story", "guard") == 0


def test_a_trigger_that_an_approval_refuses_has_failed(client: Client, project: str) -> None:
    client.create("sprint", "N-1", project=project)
    client.fire("N-1", "start", by="ann")
    drain_all(client.runtime)
    (held,) = client.show("N-1")["requests"]
    client.fire(held["result"]["approval"], "reject", by="bob")
    drain_all(client.runtime)
    assert value(client, counters.FAILED_TRANSITIONS, "sprint", "approval") == 1


def test_faults_are_retries_until_they_are_dead(own: Client, project: str, dba: Dba) -> None:
    own.create("turnstile", "T-1", project=project)
    machines.broken.add("mallory")
    own.fire("T-1", "coin", by="mallory")
    drain_all(own.runtime)
    assert value(own, counters.RETRIES, "request", "turnstile") == 1
    assert counted(own)["interlock_requests", ("retrying",)] == 1
    make_due(dba, "coin")
    with transaction(own.runtime.database) as connection:
        requests.wake(connection, limit=10)
    drain_all(own.runtime)
    found = counted(own)
    assert found[counters.FAILED_TRANSITIONS, ("turnstile", "dead")] == 1
    assert found["interlock_requests", ("dead",)] == 1
    assert found["interlock_requests", ("retrying",)] == 0


def test_a_repeated_request_is_a_hit_and_a_conflict_is_not(client: Client, stories: list[UUID]) -> None:
    for _ in range(3):
        client.fire(stories[0], "block", by="a", request_id="r-1")
    assert value(client, counters.IDEMPOTENCY_HITS) == 2
    with pytest.raises(Exception, match="used before"):
        client.fire(stories[0], "unblock", by="a", request_id="r-1")
    both = [Firing(stories[0], "block", "a", "r-1"), Firing(stories[1], "block", "a", "r-2")]
    client.fire_many(both)
    assert value(client, counters.IDEMPOTENCY_HITS) == 3
    client.fire_many(both)
    assert value(client, counters.IDEMPOTENCY_HITS) == 5


def test_leases_that_run_out_are_seen_and_then_counted(own: Client, project: str, dba: Dba) -> None:
    made = own.create("announcement", "A-1", project=project)
    own.fire(made["id"], "announce", by="ann")
    drain_all(own.runtime)
    assert counted(own)["interlock_effects", ("due",)] == 1
    (effect,) = own.show("A-1")["effects"]
    with transaction(own.runtime.database) as connection:
        assert effects.claim(connection, effect["id"], holder="w", lease_seconds=60.0)
    dba.execute("UPDATE effects SET lease_until = now() - interval '1 second'")
    assert value(own, "interlock_expired_leases") == 1
    swept(own.runtime, "leases")
    found = counted(own)
    assert found["interlock_expired_leases", ()] == 0
    assert found[counters.LEASE_EXPIRIES, ("notice",)] == 1


# Backups --------------------------------------------------------------------------------------------------------------


def test_the_age_of_the_newest_backup_is_told_where_they_are_scheduled(
    client: Client, make_runtime: Callable[..., Runtime], tmp_path: Path
) -> None:
    assert not [name for name, _ in read(client.runtime) if name.startswith("interlock_backup_")]
    place = tmp_path / "backups"
    runtime = make_runtime(backup_directory=place, backup_every_seconds=3600.0, signing=tmp_path / "keys")

    def told() -> float:
        found = read(runtime)
        assert found["interlock_backup_period_seconds", ()] == 3600
        return found["interlock_backup_age_seconds", ()]

    with transaction(runtime.database) as connection:
        installed_for = definitions.age_seconds(connection)
    assert told() == pytest.approx(installed_for, abs=60), "none yet: as old as the installation"
    stub_backup(runtime.settings, datetime.now(UTC) - timedelta(hours=5))
    cut = stub_backup(runtime.settings, datetime.now(UTC) - timedelta(hours=1))
    (cut / "base.tar.gz").write_text("more than its manifest says")
    assert told() == pytest.approx(5 * 3600, abs=60), "one that cannot be restored does not count"
    assert read(runtime)["interlock_backups", ()] == 1
    findings = examined(runtime, "backups")
    assert [each.level for each in findings] == ["warn", "warn", "ok"]
    assert [each.message for each in findings] == [
        "the newest backup is 5.0 h old",
        f"1 of 2 backups cannot be restored, first {cut.name}",
        "no drill has shown that a backup can be restored",
    ]
    shutil.rmtree(place)
    place.touch()
    assert told() == pytest.approx(installed_for, abs=60), "what cannot be read is no backup, nor the end of the scrape"
    (only,) = examined(runtime, "backups")
    assert (only.level, "cannot be read" in only.message) == ("warn", True)


def test_the_age_of_the_last_drill_that_went_well_is_told_and_whether_the_last_one_failed(
    make_runtime: Callable[..., Runtime], tmp_path: Path
) -> None:
    place = tmp_path / "backups"
    runtime = make_runtime(backup_directory=place, backup_drill_seconds=3600.0, signing=tmp_path / "keys")
    made = stub_backup(runtime.settings, datetime.now(UTC))

    def told(**drill: Any) -> tuple[float, float, str]:
        said = {"backup": made.name, "at": datetime.now(UTC).isoformat(), "problem": None, "proven_at": None}
        (place / backup_drills.NAME).write_text(json.dumps(said | drill) if drill else "no JSON")
        found = read(runtime)
        (newest, finding) = examined(runtime, "backups")
        assert newest.level == "ok"
        assert found["interlock_backup_drill_period_seconds", ()] == 3600
        age, failed = (found[f"interlock_backup_drill_{each}", ()] for each in ("age_seconds", "failed"))
        return age, failed, f"{finding.level}: {finding.message}"

    def ago(hours: float) -> str:
        return (datetime.now(UTC) - timedelta(hours=hours)).isoformat()

    with transaction(runtime.database) as connection:
        installed_for = pytest.approx(definitions.age_seconds(connection), abs=60)
    assert told() == (installed_for, 0, "ok: no drill has shown that a backup can be restored")
    overdue = make_runtime(backup_directory=place, backup_drill_seconds=1e-9, signing=tmp_path / "keys")
    assert [each.level for each in examined(overdue, "backups")] == ["ok", "warn"]
    verified = "a drill restored and verified a backup"
    assert told(proven_at=ago(1)) == (pytest.approx(3600, abs=60), 0, f"ok: {verified} 1.0 h ago")
    assert told(proven_at=ago(3)) == (pytest.approx(3 * 3600, abs=60), 0, f"warn: {verified} 3.0 h ago")
    assert told(proven_at=ago(-3))[0] == installed_for, "by a clock that was wrong"
    failing = f"fail: the last drill could not restore {made.name}: it is cut"
    assert told(proven_at=ago(1), problem="it is cut") == (pytest.approx(3600, abs=60), 1, failing)


def test_doctor_says_who_backs_up_a_postgresql_of_ones_own(client: Client) -> None:
    assert client.runtime.settings.database_url is not None
    (only,) = examined(client.runtime, "backups")
    assert (only.level, "its administrator backs it up" in only.message) == ("ok", True)


# What stands now ------------------------------------------------------------------------------------------------------


def test_what_waits_has_its_count_and_its_age(client: Client, stories: list[UUID], dba: Dba) -> None:
    for story in stories:
        client.fire(story, "block", by="a")
    dba.execute(
        "UPDATE trigger_requests SET accepted_at = now() - interval '95 s', not_before = now() - interval '95 s'"
    )
    found = read(client.runtime)
    assert found["interlock_requests", ("pending",)] == 5
    assert sum(number for (name, _), number in found.items() if name == "interlock_pending_requests") == 5
    assert 95 <= found["interlock_queue_age_seconds", ("pending",)] < 100
    assert 95 <= found["interlock_oldest_pending_request_seconds", ()] < 100
    drain_all(client.runtime)
    found = read(client.runtime)
    assert found["interlock_requests", ("pending",)] == found["interlock_oldest_pending_request_seconds", ()] == 0
    assert 0 < found["interlock_relay_lag_seconds", ("metrics",)] < 60
    assert counted(client)["interlock_relay_lag_seconds", ("metrics",)] == 0


def test_a_trigger_whose_time_has_passed_is_overdue_until_it_is_woken(
    client: Client, stories: list[UUID], dba: Dba
) -> None:
    client.fire(stories[0], "block", by="a", after=timedelta(hours=1))
    assert read(client.runtime)["interlock_queue_age_seconds", ("overdue",)] == 0
    make_due(dba)
    assert read(client.runtime)["interlock_queue_age_seconds", ("overdue",)] >= 1


def test_a_sweep_that_stands_still_is_late_and_beat_is_dead(runtime: Runtime, dba: Dba) -> None:
    for sweep in SCHEDULE:
        swept(runtime, sweep.name)
    found = read(runtime)
    assert found["interlock_beat_alive", ()] == 1
    assert found["interlock_sweep_lag_seconds", ("relay",)] < 30
    dba.execute("UPDATE sweeps SET started_at = started_at - interval '60 seconds' WHERE name = 'relay'")
    found = read(runtime)
    assert found["interlock_beat_alive", ()] == 0
    assert 58 < found["interlock_sweep_lag_seconds", ("relay",)] < 65


def test_where_the_relay_never_got_to_it_lags_and_where_it_does_not_go_it_does_not(
    client: Client, stories: list[UUID], make_runtime: Callable[..., Runtime]
) -> None:
    applied(client, stories[0], "block")
    relay(client.runtime.database, [Counters()])
    lags = {
        labels[0]: lag for (name, labels), lag in read(client.runtime).items() if name == "interlock_relay_lag_seconds"
    }
    assert lags.keys() == {"metrics", "interlock:events", "journal"}
    assert lags["metrics"] == 0
    assert lags["interlock:events"] > 0
    alone = make_runtime(broker_url="amqp://127.0.0.1:1//", redis_url=None, journal=False)
    assert [labels for name, labels in read(alone) if name == "interlock_relay_lag_seconds"] == [("metrics",)]


def test_an_open_breaker_is_named_by_its_tool(client: Client, project: str) -> None:
    client.create("circuit_breaker", "B-1", project=project, context={"tool_id": "ruff"})
    assert not [series for series in read(client.runtime) if series[0] == "interlock_breakers_open"]
    applied(client, "B-1", "failure_threshold_exceeded")
    assert value(client, "interlock_breakers_open", "ruff") == 1


# Real processes --------------------------------------------------------------------------------------------------


def test_counters_equal_history_after_real_traffic_though_the_relay_is_killed(
    client: Client, settings: Settings, tmp_path: Path, project: str, dba: Dba
) -> None:
    births = [client.birth("story", f"S-{number}", project=project) for number in range(60)]
    with ExitStack() as running:
        running.enter_context(node(settings, tmp_path, "worker", "-Q", "triggers", "-c", "2", "-E"))
        running.enter_context(node(settings, tmp_path, "beat", "--schedule", str(tmp_path / "schedule"), "--pidfile="))
        client.create_many(births)
        fired = []
        for again in range(3):
            with node(settings, tmp_path, "worker", "-Q", "sweeps", "-c", "2") as sweeps:
                for trigger in ("block", "unblock", "block", "merge", "unblock")[again:]:
                    receipts = client.fire_many(
                        [Firing(birth.id, trigger, "a") for birth in births if trigger != "merge"]
                    )
                    fired += [each.request_id for each in receipts]
                client.fire_many([Firing(birth.id, "tests_pass", "a", f"r-{birth.id}") for birth in births])
                sweeps.kill()  # whatever it is doing
        with node(settings, tmp_path, "worker", "-Q", "sweeps", "-c", "2"):
            client.wait(fired, timeout_seconds=60)
            eventually(lambda: read(client.runtime)["interlock_relay_lag_seconds", ("metrics",)] == 0, timeout=30)
            eventually(lambda: dba.execute("SELECT count(*) FROM metric_deltas").fetchone() == (0,), timeout=30)
            found = read(client.runtime)
    assert kept_counts(found) == history_says(dba)
    assert found["state_transitions_total", ("story", "analysis", "blocked")] == 60
    assert found[counters.IDEMPOTENCY_HITS, ()] == 120
