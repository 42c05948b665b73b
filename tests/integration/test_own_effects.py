"""Effects of one's own: called under a lease, tried again, cancelled with their instance, told under their token."""

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from redis import Redis

from interlock.db.connection import transaction
from interlock.db.core import effects as rows
from interlock.workers import effect_runner
from interlock.workers.client.client import Client
from interlock.workers.effects import declared
from interlock.workers.effects.declared import EffectCall, EffectCancelled
from interlock.workers.operations import metrics
from interlock.workers.operations.checks.requests import check_backlog
from interlock.workers.overrides.retry_effect import CannotRetry, NoSuchEffect, retry_effect
from interlock.workers.overrides.transaction import NotAnOperator, OverrideOrder
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import NotYours, StaleLease
from tests import own_machines
from tests.driving import drain_all, state, swept
from tests.nodes import node
from tests.own_machines import calls, doing
from tests.waiting import eventually

pytestmark = pytest.mark.integration
Dba = "psycopg.Connection[Any]"


@pytest.fixture
def own(knowing: Callable[..., Runtime], monkeypatch: pytest.MonkeyPatch) -> Client:
    """A client that knows `release`; instances' moves are noticed at once."""
    monkeypatch.setattr(declared, "WATCH_SECONDS", 0.05)
    monkeypatch.setattr(declared, "WRITE_SECONDS", 0.0)
    calls.clear()
    doing.clear()
    own_machines.undone.clear()
    return Client(knowing("tests.own_machines"))


def begun(client: Client, trigger: str = "start") -> UUID:
    """A release whose effect is due."""
    made: UUID = client.create("release", "R-1", context={"image": "web:7"}, by="ann")["id"]
    client.fire(made, trigger, by="ann", data={"ticket": 12})
    drain_all(client.runtime)
    return made


def effect_of(client: Client, ref: UUID, name: str = "tests_deploy") -> dict[str, Any]:
    (found,) = [dict(each) for each in client.show(ref)["effects"] if each["name"] == name]
    return found


def run(client: Client, ref: UUID, name: str = "tests_deploy") -> dict[str, Any]:
    """Run an effect once, as a worker does; its row afterwards."""
    effect_runner.run(client.runtime, effect_of(client, ref, name)["id"])
    drain_all(client.runtime)
    return effect_of(client, ref, name)


def run_due(client: Client, dba: Dba, ref: UUID) -> dict[str, Any]:
    dba.execute("UPDATE effects SET not_before = now() WHERE status = 'pending'")
    return run(client, ref)


def move_on(client: Client, ref: UUID) -> None:
    client.fire(ref, "abort", by="ann")
    drain_all(client.runtime)


def test_it_gets_its_instance_and_what_it_returns_is_the_data_of_its_trigger(own: Client) -> None:
    doing["deploy"] = lambda call: {"url": f"https://{call.instance.entity_id}", "effect": "another"}
    release = begun(own)
    row = run(own, release)
    (call,) = calls
    assert (call.instance.id, call.instance.type, call.instance.entity_id) == (release, "release", "R-1")
    assert (call.instance.project, call.instance.definition_version) == ("default", "1.0.0")
    assert (call.instance.state, call.instance.version) == ("deploying", 1)
    assert call.instance.context == {"image": "web:7"}
    assert (call.trigger, call.from_state, call.by, call.data) == ("start", "planned", "ann", {"ticket": 12})
    assert (call.idempotency_key, call.attempt, call.token) == (str(row["id"]), 1, 1)
    assert (row["status"], row["result"]) == ("done", {"url": "https://R-1", "effect": "another"})
    event = own.history(release)[-1]
    assert (event["trigger"], event["triggered_by"]) == ("deployed", "effect")
    assert event["metadata"] == {"url": "https://R-1", "effect": "tests_deploy"}, "its name cannot be forged"
    assert state(own, release) == "watching"


def test_only_its_lease_may_fire_its_outcome(own: Client) -> None:
    release = begun(own)
    with pytest.raises(NotYours, match="deployed of release R-1 is not mallory's to fire"):
        own.fire(release, "deployed", by="mallory")


def test_an_exception_is_tried_again_with_the_same_key_and_at_last_told(own: Client, dba: Dba) -> None:
    def fail(call: EffectCall) -> None:
        call.heartbeat({"step": call.attempt})
        raise ConnectionError(f"attempt {call.attempt}, after {call.progress}")

    doing["deploy"] = fail
    release = begun(own)
    row = run(own, release)
    assert (row["status"], row["attempts"]) == ("pending", 1)
    assert row["error"] == "ConnectionError: attempt 1, after {'step': 1}"
    for _ in range(2):
        row = run_due(own, dba, release)
    assert (row["status"], row["attempts"], row["progress"]) == ("dead", 3, {"step": 3}), "retries=2"
    assert {call.idempotency_key for call in calls} == {str(row["id"])}
    assert [call.token for call in calls] == [1, 2, 3]
    assert state(own, release) == "failed"
    assert own.history(release)[-1]["metadata"]["reason"].startswith("ConnectionError: attempt 3")


def test_a_later_attempt_gets_the_progress_of_the_one_before(
    own: Client, dba: Dba, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(declared, "WRITE_SECONDS", 1e9)
    seen: list[Any] = []

    def work(call: EffectCall) -> None:
        seen.append(call.progress)
        call.heartbeat({"copied": 1})
        call.heartbeat({"copied": 5})
        if call.attempt == 1:
            raise OSError("lost")

    doing["deploy"] = work
    release = begun(own)
    run(own, release)
    assert run_due(own, dba, release)["status"] == "done"
    assert seen == [None, {"copied": 5}]


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (7, "BadInput: it returned int: return a mapping"),
        ({"at": object()}, "BadInput: the outcome of the effect cannot be written as JSON"),
        ({"votes": 3}, "BadInput: the outcome of the effect.votes is what Interlock itself writes into history"),
        ({"operator": "ann"}, "BadInput: the outcome of the effect.operator is reserved for overrides"),
        ({"spent": "much"}, "BadInput: data.spent is what was spent"),
        ({"x": "y" * 2**20}, "BadInput: the outcome of the effect is larger than 1,048,576 bytes"),
    ],
)
def test_what_cannot_be_data_is_a_failure(own: Client, result: object, why: str) -> None:
    doing["deploy"] = lambda _: result
    row = run(own, begun(own))
    assert row["status"] == "pending"
    assert row["error"].startswith(why)


def test_ending_the_process_is_a_failure_and_no_end_of_it(own: Client) -> None:
    doing["deploy"] = lambda _: sys.exit(3)
    assert run(own, begun(own))["error"] == "InterlockError: it ended its process: exit code 3"


def test_it_is_not_called_once_its_instance_has_moved_on(own: Client) -> None:
    release = begun(own)
    move_on(own, release)
    row = run(own, release)
    assert (row["status"], row["attempts"], calls) == ("cancelled", 0, [])
    assert "release R-1 has moved on since it was 'deploying', version 1" in row["error"]
    assert row["finished_at"] is not None


def test_a_sync_one_is_cancelled_at_its_next_heartbeat(own: Client) -> None:
    def work(call: EffectCall) -> None:
        call.heartbeat()
        move_on(own, call.instance.id)
        with pytest.raises(EffectCancelled):
            call.heartbeat()
        assert call.cancelled

    doing["deploy"] = work
    release = begun(own)
    assert run(own, release)["status"] == "cancelled", "also if it returns as if nothing had happened"
    assert [event["trigger"] for event in own.history(release)] == ["start", "abort"]


def test_an_async_one_is_cancelled_by_its_loop(own: Client) -> None:
    def work(call: EffectCall) -> Iterator[float]:
        yield 0.01
        move_on(own, call.instance.id)
        yield 20.0

    doing["wait"] = work
    assert run(own, begun(own, "wait"), "tests_wait")["status"] == "cancelled"
    assert own_machines.undone.is_set()


def test_an_async_one_that_returns_tells_its_outcome(own: Client) -> None:
    doing["watch"] = lambda call: [0.0]
    release = begun(own, "skip")
    assert run(own, release, "tests_watch")["status"] == "done"
    assert (state(own, release), own.history(release)[-1]["metadata"]["watched"]) == ("live", "R-1")


def test_one_that_owes_a_heartbeat_and_sends_none_is_stopped_and_tried_again(own: Client) -> None:
    doing["watch"] = lambda call: [20.0]
    release = begun(own, "skip")
    row = run(own, release, "tests_watch")
    assert (row["status"], row["error"]) == ("pending", "EffectTimeout: no heartbeat for 3 s")
    assert own_machines.undone.is_set()


def test_heartbeats_keep_it_at_work(own: Client) -> None:
    def work(call: EffectCall) -> Iterator[float]:
        for part in range(5):
            call.heartbeat({"part": part})
            yield 1.0

    doing["watch"] = work
    row = run(own, begun(own, "skip"), "tests_watch")
    assert (row["status"], row["progress"]) == ("done", {"part": 4})


def test_one_without_an_outcome_is_run_though_its_instance_has_ended(own: Client) -> None:
    doing["watch"] = lambda call: []
    release = begun(own, "skip")
    run(own, release, "tests_watch")
    assert run(own, release, "tests_tell")["status"] == "done"
    assert [call.name for call in calls] == ["tests_watch", "tests_tell"]


def test_a_lost_lease_is_told_to_the_function_and_its_outcome_is_not_taken(own: Client, dba: Dba) -> None:
    def work(call: EffectCall) -> Mapping[str, Any]:
        dba.execute("UPDATE effects SET token = token + 1")
        with pytest.raises(StaleLease):
            call.heartbeat()
        return {"mine": True}

    doing["deploy"] = work
    release = begun(own)
    assert run(own, release)["status"] == "leased"
    assert state(own, release) == "deploying"


def test_an_effect_whose_workers_went_silent_has_its_own_number_of_attempts(own: Client, dba: Dba) -> None:
    release = begun(own)
    for _ in range(3):
        with transaction(own.runtime.database) as connection:
            assert rows.claim(connection, effect_of(own, release)["id"], holder="w", lease_seconds=60)
        dba.execute("UPDATE effects SET lease_until = now() - interval '1 second' WHERE status = 'leased'")
        dba.execute("DELETE FROM sweeps")
        swept(own.runtime, "leases")
    assert effect_of(own, release)["status"] == "dead"
    drain_all(own.runtime)
    assert state(own, release) == "failed"


def test_a_node_that_has_not_its_code_leaves_it_to_others(
    own: Client, runtime: Runtime, dba: Dba, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = begun(own)
    monkeypatch.setattr("interlock.workflows.effects._DECLARED", {})
    for _ in range(4):
        row = run_due(own, dba, release)
        assert (row["status"], row["attempts"]) == ("pending", 0), row["error"]
    assert "declares 'tests_deploy'" in row["error"]


def test_its_wake_up_goes_to_its_queue(own: Client, valkey: "Redis") -> None:
    doing["watch"] = lambda call: []
    release = begun(own, "skip")
    valkey.flushall()
    run(own, release, "tests_watch")
    assert (effect_of(own, release, "tests_tell")["queue"], valkey.llen("interlock:gates")) == ("gates", 1)


@pytest.mark.timeout(120)
def test_a_worker_runs_it_and_interrupts_one_that_takes_too_long(own: Client, tmp_path: Path) -> None:
    """In a real Celery node: its first attempt hangs past its second of time, which Celery's time limit ends."""
    settings = own.runtime.settings.model_copy(update={"backoff_base_seconds": 0.01, "backoff_cap_seconds": 0.01})
    probe = tmp_path / "attempts"
    queues = "triggers,sweeps,effects,gates"
    with (
        node(settings, tmp_path, "worker", "-Q", queues, "-c", "2", HANGS=str(probe)),
        node(settings, tmp_path, "beat", "--schedule", str(tmp_path / "beat")),
    ):
        release = own.create("release", "R-1", by="ann")["id"]
        own.fire(release, "start", by="ann")
        eventually(lambda: state(own, release) == "live", timeout=60)
        eventually(lambda: effect_of(own, release, "tests_tell")["status"] == "done", timeout=60)
    assert probe.read_text().split() == ["1", "2"]
    assert effect_of(own, release)["attempts"] == 2


def dead(client: Client, dba: Dba, ref: UUID, name: str) -> str:
    """Let an effect die; its id."""
    row = effect_of(client, ref, name)
    dba.execute(
        "UPDATE effects SET status = 'dead', error = 'OSError: away', attempts = 3, finished_at = now() WHERE id = %s",
        (row["id"],),
    )
    return str(row["id"])


def test_an_operator_tries_a_dead_one_again_with_a_reason(own: Client, ann: None, dba: Dba) -> None:
    doing["deploy"] = lambda _: {}
    release = begun(own)
    again, order = dead(own, dba, release, "tests_deploy"), OverrideOrder("ann", "the host is back")
    with pytest.raises(NotAnOperator, match="'mallory' is not an operator"):
        retry_effect(own.runtime, again, OverrideOrder("mallory", "because"))
    assert effect_of(own, release)["status"] == "dead"
    assert "effects" in [each.check for each in check_backlog(own.runtime)]
    row = retry_effect(own.runtime, again, order)
    assert (row["status"], row["attempts"], row["error"]) == ("pending", 0, None)
    assert (row["payload"]["redriven_by"], row["payload"]["redriven_because"]) == ("ann", "the host is back")
    assert row["declared"]["retries"] == 2
    with pytest.raises(CannotRetry, match="is pending; only a dead one can be tried again"):
        retry_effect(own.runtime, again, order)
    run(own, release)
    assert state(own, release) == "watching"


def test_a_dead_one_is_not_tried_again_once_its_failure_was_told(own: Client, ann: None, dba: Dba) -> None:
    release = begun(own)
    again = dead(own, dba, release, "tests_deploy")
    move_on(own, release)
    with pytest.raises(CannotRetry, match=r"release/R-1 has moved on, and is in 'failed'\. Legal there: nothing"):
        retry_effect(own.runtime, again, OverrideOrder("ann", "the host is back"))
    with transaction(own.runtime.database) as connection:
        assert rows.dead(connection, limit=10) == rows.redrive(connection) == []
    assert not [each for each in check_backlog(own.runtime) if each.check == "effects" and "dead" in each.message]
    assert metrics.read(own.runtime)["interlock_effects", ("dead",)] == 0
    assert effect_of(own, release)["status"] == "dead"


@pytest.mark.parametrize("unknown", ["R-1", str(UUID(int=7))])
def test_an_unknown_one_is_refused(own: Client, ann: None, unknown: str) -> None:
    with pytest.raises(NoSuchEffect, match="interlock effect list"):
        retry_effect(own.runtime, unknown, OverrideOrder("ann", "why not"))
