"""Each alert fires on what really happens: instances are moved, the exporter is scraped, the rules see the samples."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from interlock.beat.schedule import SCHEDULE
from interlock.db.connection import transaction
from interlock.db.core import definitions, effects
from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.audit import backup_drills
from interlock.workers.audit.backup_drills import LastDrill
from interlock.workers.client.client import Client
from interlock.workers.overrides.brakes import put_brake
from interlock.workers.overrides.subscriptions import WantedEvents, subscribe
from interlock.workers.overrides.tasks import complete_task
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.relay.destinations import Counters, destinations
from interlock.workers.relay.relay import relay
from interlock.workers.runtime import Runtime
from interlock.workers.schedules.firing import fire_due
from interlock.workers.settings import Settings
from interlock.workflows.catalogue import catalogue
from interlock.workflows.errors import NotYours
from tests import databases, machines
from tests.backup_stubs import stub_backup
from tests.crewing import silence
from tests.driving import applied, drain_all, swept
from tests.promtool import needs_promtool, rules_of
from tests.running import Stage
from tests.scheduling import born
from tests.scraping import RULES, Prometheus, Scraped, scraped
from tests.tampering import unprotected

pytestmark = [pytest.mark.integration, needs_promtool]
OWN: dict[str, Any] = {"definitions": ("tests.machines",), "max_attempts": 1, "stuck_seconds": 0.001}
BEFORE = 2  # scrapes before anything happens
Dba = "psycopg.Connection[Any]"


@dataclass(frozen=True)
class Quiet:
    """An installation in which each sweep has run once, and nothing else: its database, its home, what it exports."""

    database: str
    home: Path
    scraped: Scraped


@pytest.fixture(scope="module")
def quiet(servers: Servers, template_with_ann: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Quiet]:
    """One that knows `turnstile` and `announcement`, gives up at once, and counts a moment as stuck."""
    home = tmp_path_factory.mktemp("quiet") / "home"

    def sweep(client: Client) -> Scraped:
        settings = client.runtime.settings
        own = {"owner_url": databases.as_owner(servers, settings.database_url or ""), "backup_directory": home / "none"}
        with closing(Runtime(settings.model_copy(update=OWN | own))) as runtime:
            with transaction(runtime.owned) as connection:
                definitions.record(connection, catalogue(OWN["definitions"]))
            for each in SCHEDULE:
                swept(runtime, each.name)
            return scraped(runtime)

    with databases.written(servers, template_with_ann, sweep, home) as (name, found):
        yield Quiet(name, home, found)


@pytest.fixture
def database_to_copy(quiet: Quiet) -> str:
    return quiet.database


@pytest.fixture
def own(make_runtime: Callable[..., Runtime], quiet: Quiet, settings: Settings, dba: Dba) -> Iterator[Runtime]:
    """A copy of it, whose sweeps have run just now."""
    shutil.copytree(quiet.home, settings.home)
    dba.execute("UPDATE sweeps SET started_at = now()")
    yield make_runtime(**OWN, backup_directory=settings.home.parent / "backups")
    machines.broken.clear()


@pytest.fixture
def prometheus(quiet: Quiet, tmp_path: Path) -> Prometheus:
    made = Prometheus(tmp_path)
    made.note(quiet.scraped, times=BEFORE)
    return made


@pytest.fixture
def stage(own: Runtime, dba: Dba) -> Stage:
    return Stage(own, dba, project=own.settings.project)


def run_of(stage: Stage, tasks: int, **sketch: Any) -> list[str]:
    """A run whose tasks are queued; their names."""
    names = [f"t{number}" for number in range(tasks)]
    stage.submit({"w": {}}, {name: {"workstream": "w", **sketch} for name in names})
    stage.start()
    return names


def patch(stage: Stage, number: int) -> UUID:
    """A ledger entry that was just created; its effects are left alone."""
    context = {"patch_id": f"p{number}", "workstream_id": str(stage.ids["w"])}
    stage.dba.execute("INSERT INTO patches (patch_id, body, created_by) VALUES (%s, 'x', 'test')", (f"p{number}",))
    made = stage.client.create("patch_ledger", f"p{number}", project=stage.project, context=context)
    return UUID(str(made["id"]))


def healthy(stage: Stage) -> None:
    for name in run_of(stage, 3):
        stage.work(name)


def failures(stage: Stage) -> None:
    names = run_of(stage, 4, max_retries=0)
    for name in names[:3]:
        stage.work(name, exit_code=1)


def retries(stage: Stage) -> None:
    for name in run_of(stage, 3, max_retries=3)[:2]:
        stage.work(name, exit_code=1)


def blocked(stage: Stage) -> None:
    tasks: dict[str, dict[str, Any]] = {"first": {"workstream": "w", "max_retries": 0}}
    tasks |= {f"t{number}": {"workstream": "w", "depends_on": ["first"]} for number in range(6)}
    stage.submit({"w": {}}, tasks)
    stage.start()
    for number in range(6):
        assert stage.fire(f"t{number}", "dependency_check_failed") in ("applied", "rejected")


def overrides(stage: Stage, many: int = 6) -> None:
    for name in run_of(stage, many):
        stage.begin(name)
        assert len(complete_task(stage.runtime, str(stage.ids[name]), OverrideOrder("ann", "seen to it")).moves) == 2


def breaker(stage: Stage) -> None:
    stage.client.create("circuit_breaker", "B-1", project=stage.project, context={"tool_id": "ruff"})
    applied(stage.client, "B-1", "failure_threshold_exceeded")


def quarantined(stage: Stage) -> None:
    run_of(stage, 1)
    for number in range(4):
        assert stage.fire(patch(stage, number), "validation_failed", reason="format") == "applied"


def rolled_back(stage: Stage) -> None:
    run_of(stage, 1)
    entry = patch(stage, 1)
    for trigger in ("validation_passed", "apply_succeeded"):  # the scheduler fires those between
        assert stage.fire(entry, trigger) == "applied", stage.client.show(entry)["requests"][0]["result"]
    assert stage.fire(entry, "commit_succeeded", commit_sha="0" * 40) == "applied"
    said = {"authorized_by": "ann", "reason": "regression", "compensation": {"reverted": True}}
    assert stage.fire(entry, "roll_back", **said) == "applied"


def silent_worker(stage: Stage) -> None:
    (name,) = run_of(stage, 1)
    stage.begin(name)
    worker = stage.worker()
    for trigger in ("registration_complete", "task_assigned"):
        stage.fire(worker, trigger, required_capabilities=[])
    assert stage.client.show(worker)["current_state"] == "busy"
    silence(stage.dba, worker, 200)
    stage.dba.execute("DELETE FROM sweeps WHERE name = 'heartbeats'")
    swept(stage.runtime, "heartbeats")
    drain_all(stage.runtime)


def stuck(stage: Stage) -> None:
    stage.client.create("story", "S-1", project=stage.project)
    stage.dba.execute("DELETE FROM sweeps WHERE name = 'stuck'")
    assert swept(stage.runtime, "stuck")


def beat_dead(stage: Stage) -> None:
    stage.dba.execute("UPDATE sweeps SET started_at = started_at - interval '1 minute' WHERE name = 'dispatch'")


def nobody_applies(stage: Stage) -> None:
    stage.client.create("story", "S-1", project=stage.project)
    stage.client.fire("S-1", "block", by="a")
    stage.dba.execute(
        "UPDATE trigger_requests SET accepted_at = accepted_at - interval '2 min', not_before = '-infinity'"
    )


def dead_request(stage: Stage) -> None:
    stage.client.create("turnstile", "T-1", project=stage.project)
    machines.broken.add("mallory")
    stage.client.fire("T-1", "coin", by="mallory")
    drain_all(stage.runtime)


def partition_stuck(stage: Stage) -> None:
    stage.client.create("story", "S-1", project=stage.project)
    stage.client.fire("S-1", "block", by="a")
    stage.dba.execute(
        "INSERT INTO partition_watch (partition, head, since)"
        " SELECT partition, seq, now() - interval '1 min' FROM trigger_requests WHERE status = 'pending'"
    )


def leased(stage: Stage, name: str) -> None:
    made = stage.client.create("announcement", name, project=stage.project)
    stage.client.fire(made["id"], "announce", by="ann")
    drain_all(stage.runtime)
    (effect,) = stage.client.show(made["id"])["effects"]
    with transaction(stage.runtime.database) as connection:
        assert effects.claim(connection, effect["id"], holder="w", lease_seconds=60.0)
    stage.dba.execute("UPDATE effects SET lease_until = now() - interval '1 second' WHERE status = 'leased'")


def lease_not_taken_back(stage: Stage) -> None:
    leased(stage, "A-1")


def leases_lost(stage: Stage) -> None:
    for number in range(3):
        leased(stage, f"A-{number}")
    stage.dba.execute("DELETE FROM sweeps WHERE name = 'leases'")
    swept(stage.runtime, "leases")


def relay_behind(stage: Stage) -> None:
    stage.client.create("story", "S-1", project=stage.project)
    applied(stage.client, "S-1", "block")
    stage.dba.execute("DELETE FROM relay_cursors WHERE name = 'interlock:events'")  # it was never reached
    stage.dba.execute("ALTER TABLE workflow_transitions DISABLE TRIGGER ALL")  # time cannot be waited for here
    stage.dba.execute("UPDATE workflow_transitions SET created_at = created_at - interval '5 minutes'")


def unprotected_event(stage: Stage) -> None:
    """An event that was carried everywhere, and whose row can be changed."""
    stage.client.create("story", "S-1", project=stage.project)
    applied(stage.client, "S-1", "block")
    relay(stage.runtime.database, destinations(stage.runtime))
    stage.dba.execute("ALTER TABLE workflow_transitions DISABLE TRIGGER ALL")


def export_missing(stage: Stage) -> None:
    unprotected_event(stage)
    stage.dba.execute("UPDATE workflow_transitions SET created_at = created_at - interval '27 hours'")


def history_changed(stage: Stage) -> None:
    unprotected_event(stage)
    stage.dba.execute("UPDATE workflow_transitions SET triggered_by = 'mallory'")
    stage.dba.execute("UPDATE verifications SET started_at = started_at - interval '25 hours'")
    stage.dba.execute("DELETE FROM sweeps WHERE name = 'verify'")
    swept(stage.runtime, "verify")


def history_unverified(stage: Stage) -> None:
    stage.dba.execute("UPDATE verifications SET started_at = started_at - interval '51 hours'")


def backup_overdue(stage: Stage) -> None:
    stub_backup(stage.runtime.settings, datetime.now(UTC) - timedelta(hours=51))


def backup_unproven(stage: Stage) -> None:
    settings, now = stage.runtime.settings, datetime.now(UTC)
    stub_backup(settings, now)
    drilled = LastDrill("a backup", now, problem="its history was changed", proven_at=now)
    record = json.dumps(asdict(drilled), default=datetime.isoformat)
    (settings.backups_directory / backup_drills.NAME).write_text(record)


def schedule_late(stage: Stage) -> None:
    does = {"create": {"type": "story", "name": "S-%due"}}
    born(stage.dba, "late", timedelta(minutes=5), times={"every_seconds": 60}, does=does)


def schedule_failing(stage: Stage) -> None:
    does = {"create": {"type": "story", "name": "S-%due"}}
    for name in ("first", "second"):  # of the two, one finds its name taken
        born(stage.dba, name, timedelta(minutes=1), times={"cron": "* * * * *"}, does=does)
    fire_due(stage.runtime)
    drain_all(stage.runtime)


def many_refusals(stage: Stage) -> None:
    stage.client.create("circuit_breaker", "B-1", project=stage.project, context={"tool_id": "ruff"})
    for _ in range(21):
        with pytest.raises(NotYours):
            stage.client.fire("B-1", "failure_threshold_exceeded", by="mallory")
    drain_all(stage.runtime)


def brake_on(stage: Stage) -> None:
    put_brake(stage.runtime, "actor", "agent-7", OverrideOrder("ann", "it runs wild"), project=stage.project)


def subscription(stage: Stage) -> UUID:
    wanted, order = WantedEvents(), OverrideOrder("ann", "release notes")
    made = subscribe(
        stage.runtime, "chat", "https://a.example/", order, secrets=["file:own"], wanted=wanted, project=stage.project
    )
    return UUID(str(made["id"]))


def endpoint_fails(stage: Stage) -> None:
    since = "UPDATE subscriptions SET attempts = 3, failed_at = now() - interval '2 minutes' WHERE subscription_id = %s"
    stage.dba.execute(since, (subscription(stage),))


def nobody_delivers(stage: Stage) -> None:
    subscription(stage)
    stage.client.create("story", "S-1", project=stage.project)
    stage.client.fire("S-1", "block", by="bob")
    drain_all(stage.runtime)
    stage.dba.execute("UPDATE subscriptions SET next_at = next_at - interval '2 minutes'")
    with unprotected(stage.dba, "workflow_transitions"):
        stage.dba.execute("UPDATE workflow_transitions SET created_at = created_at - interval '3 minutes'")


PROVOKED: dict[str, tuple[Callable[[Stage], None], set[str]]] = {
    # alert: what provokes it, and which others that rightly fires too
    "InterlockHighFailureRate": (failures, set()),
    "InterlockManualOverrideSpike": (overrides, set()),
    "InterlockStuckEntities": (stuck, set()),
    "InterlockCircuitBreakerOpen": (breaker, set()),
    "InterlockRollbackExecuted": (rolled_back, set()),
    "InterlockBeatDead": (beat_dead, set()),
    "InterlockTriggersNotApplied": (nobody_applies, set()),
    "InterlockRetryIncrease": (retries, set()),
    "InterlockWorkerUnresponsive": (silent_worker, {"InterlockRetryIncrease"}),  # its task is given back
    "InterlockValidationFailures": (quarantined, set()),
    "InterlockBlockedTasks": (blocked, set()),
    "InterlockPartitionStuck": (partition_stuck, set()),
    "InterlockDeadRequests": (dead_request, set()),
    "InterlockDeadEffects": (leases_lost, {"InterlockLeasesLost"}),
    "InterlockLeasesStale": (lease_not_taken_back, set()),
    "InterlockLeasesLost": (leases_lost, {"InterlockDeadEffects"}),
    "InterlockRelayLags": (relay_behind, set()),
    "InterlockAuditExportMissing": (export_missing, set()),
    "InterlockHistoryChanged": (history_changed, set()),
    "InterlockHistoryUnverified": (history_unverified, set()),
    "InterlockBackupOverdue": (backup_overdue, set()),
    "InterlockBackupUnproven": (backup_unproven, set()),
    "InterlockSchedulesLate": (schedule_late, set()),
    "InterlockSchedulesFailing": (schedule_failing, set()),
    "InterlockManyRefusals": (many_refusals, set()),
    "InterlockBrakesOn": (brake_on, set()),
    "InterlockSubscriptionsFailing": (endpoint_fails, set()),
    "InterlockSubscriptionsIdle": (nobody_delivers, {"InterlockRelayLags"}),  # the event is an old one
}
ELSEWHERE = {"InterlockDown"}


def test_every_alert_is_provoked() -> None:
    assert {rule.alert for rule in rules_of(RULES)} == PROVOKED.keys() | ELSEWHERE


@pytest.mark.parametrize("alert", PROVOKED)
def test_it_fires_when_that_happens_and_not_before(prometheus: Prometheus, stage: Stage, alert: str) -> None:
    provoke, others = PROVOKED[alert]
    provoke(stage)
    relay(stage.runtime.database, [Counters()])
    prometheus.note(scraped(stage.runtime), times=24)
    assert (found := prometheus.fired).keys() == {alert} | others
    assert min(found.values()) >= BEFORE


def test_five_overrides_are_no_spike_though_each_takes_two_moves(prometheus: Prometheus, stage: Stage) -> None:
    overrides(stage, 5)
    relay(stage.runtime.database, [Counters()])
    prometheus.note(scraped(stage.runtime), times=8)
    assert prometheus.fired == {}


def test_a_run_that_goes_well_fires_none(prometheus: Prometheus, stage: Stage) -> None:
    healthy(stage)
    relay(stage.runtime.database, [Counters()])
    prometheus.note(scraped(stage.runtime), times=8)
    assert prometheus.fired == {}


def test_a_database_that_is_away_fires(make_runtime: Callable[..., Runtime], tmp_path: Path) -> None:
    prometheus = Prometheus(tmp_path)
    prometheus.note(scraped(make_runtime(database_url="postgresql://nobody:x@127.0.0.1:1/none")), times=6)
    assert prometheus.fired.keys() == {"InterlockDown"}
