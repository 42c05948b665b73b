"""The one function that changes state: in order, once, and with every fault confined to its own instance."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
import structlog
from redis import Redis
from structlog.testing import capture_logs
from uuid_utils.compat import uuid7

from interlock.db.audit import verify
from interlock.db.connection import transaction
from interlock.db.core import requests
from interlock.db.core.requests import PARTITIONS, partition_of
from interlock.db.core.rounds import BATCH, gather
from interlock.workers.client.client import Client
from interlock.workers.client.partition_drainer import Drain
from interlock.workers.engine import applier
from interlock.workers.engine.trigger_request import Firing
from interlock.workers.runtime import Runtime
from tests import machines
from tests.driving import UP_TO_REVIEW, applied, drain_all, make_due, outcome, state, swept, trail
from tests.waiting import eventually

pytestmark = pytest.mark.integration
OWN = ("tests.machines",)


@pytest.fixture
def own(knowing: Callable[..., Runtime]) -> Iterator[Client]:
    """A client and engine that know the definitions of `tests.machines`, and give up after three attempts."""
    yield Client(knowing(*OWN, max_attempts=3))
    machines.broken.clear()


def gate(client: Client, name: str = "T-1") -> UUID:
    made: UUID = client.create("turnstile", name, project=uuid7())["id"]
    return made


def verified(client: Client) -> None:
    """Every chain is whole."""
    verdict = verify.verify(client.runtime.database)
    assert verdict.ok, verdict.problems


def test_a_burst_on_one_instance_is_applied_in_the_order_accepted_in_one_commit(
    client: Client, story: UUID, dba: "psycopg.Connection[Any]"
) -> None:
    client.fire_many([Firing(story, trigger, "a") for trigger in UP_TO_REVIEW])
    assert drain_all(client.runtime) == 3
    assert trail(client, story) == list(UP_TO_REVIEW)
    assert dba.execute("SELECT count(DISTINCT xid) FROM workflow_transitions").fetchone() == (1,)
    verified(client)


def test_a_duplicate_wakeup_finds_nothing_to_do(client: Client, story: UUID) -> None:
    client.fire(story, "design_complete", by="a")
    partition = partition_of(story)
    assert [client.runtime.applier.apply_partition(partition).taken for _ in range(3)] == [1, 0, 0]


def test_workers_that_get_the_same_partition_at_once_apply_each_trigger_once_and_in_order(
    client: Client, story: UUID, make_runtime: Callable[..., Runtime]
) -> None:
    applied(client, story, *UP_TO_REVIEW)
    rounds = [Firing(story, trigger, "a") for _ in range(50) for trigger in ("request_changes", "submit_pr")]
    client.fire_many(rounds)
    workers = [make_runtime() for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        taken = pool.map(
            lambda worker: sum(worker.applier.apply_partition(partition_of(story), limit=7).taken for _ in range(9)),
            workers,
        )
        assert sum(taken) == 100
    assert trail(client, story)[3:] == [firing.trigger for firing in rounds]
    verified(client)


def test_an_illegal_trigger_is_rejected_with_what_would_be_legal_and_never_retried(client: Client, story: UUID) -> None:
    receipt = client.fire(story, "tests_pass", by="a")
    drain_all(client.runtime)
    row = outcome(client, receipt.request_id)
    assert (row["status"], row["attempts"], row["error"]) == ("rejected", 0, None)
    assert row["result"]["code"] == "no_such_transition"
    assert row["result"]["legal"] == ["design_complete", "block", "move_to_sprint", "leave_sprint"]
    assert client.show(story)["version"] == 0


def test_a_refusal_holds_nothing_up(client: Client, story: UUID) -> None:
    client.fire_many([Firing(story, trigger, "a") for trigger in ("tests_pass", "design_complete", "submit_pr")])
    drain_all(client.runtime)
    assert trail(client, story) == ["design_complete"]


def test_every_event_tells_who_when_why_and_by_which_request(client: Client, story: UUID) -> None:
    receipt = client.fire(story, "block", by="agent-7", data={"why": "no plan"}, request_id="r-1")
    drain_all(client.runtime)
    (event,) = client.history(story)
    told = {key: event[key] for key in ("seq", "from_state", "to_state", "trigger", "triggered_by", "request_id")}
    assert told == {
        "seq": 1,
        "from_state": "analysis",
        "to_state": "blocked",
        "trigger": "block",
        "triggered_by": "agent-7",
        "request_id": receipt.request_id,
    }
    assert event["metadata"] == {"why": "no plan"}
    assert event["severity"] == "warning"
    assert outcome(client, "r-1")["result"]["event_id"] == str(event["id"])


def test_each_move_is_announced_after_its_commit_exactly_as_the_decision_says(
    client: Client, story: UUID, project: str, valkey: "Redis", dba: "psycopg.Connection[Any]"
) -> None:
    with valkey.pubsub(ignore_subscribe_messages=True) as bus:
        bus.subscribe(f"project:{project}")
        eventually(lambda: bus.subscribed and valkey.pubsub_numsub(f"project:{project}")[0][1] == 1)
        client.fire_many([Firing(story, trigger, "a") for trigger in ("design_complete", "tests_pass", "block")])
        drain_all(client.runtime)
        heard = [json.loads(eventually(lambda: bus.get_message(timeout=1))["data"]) for _ in range(2)]
    assert heard == [
        {"type": "workflow_transition", "workflow_id": str(story), "new_state": "design"},
        {"type": "workflow_transition", "workflow_id": str(story), "new_state": "blocked"},
    ]


def test_a_bus_that_is_down_undoes_nothing(make_runtime: Callable[..., Runtime], project: str) -> None:
    client = Client(make_runtime(redis_url="redis://127.0.0.1:1/0"))
    story = client.create("story", "S-1", project=project)["id"]
    applied(client, story, "design_complete")
    assert state(client, story) == "design"


def test_what_a_guard_raises_is_recorded_on_the_instance_and_the_request(own: Client) -> None:
    turnstile = gate(own)
    machines.broken.add("a")
    receipt = own.fire(turnstile, "coin", by="a")
    drain_all(own.runtime)
    row, shown = outcome(own, receipt.request_id), own.show(turnstile)
    assert (row["status"], row["attempts"]) == ("scheduled", 1)
    assert row["error"] == shown["error"] == "Broken: no answer for a"
    assert (shown["retry_count"], shown["version"], shown["current_state"]) == (1, 0, "shut")


def test_the_next_move_clears_the_error(own: Client, dba: "psycopg.Connection[Any]") -> None:
    turnstile = gate(own)
    machines.broken.add("a")
    own.fire(turnstile, "coin", by="a")
    drain_all(own.runtime)
    machines.broken.clear()
    wake(own, dba)
    shown = own.show(turnstile)
    assert (shown["current_state"], shown["error"], shown["retry_count"]) == ("open", None, 0)


def test_a_request_in_retry_holds_up_those_behind_it_and_only_those_of_its_instance(
    own: Client, dba: "psycopg.Connection[Any]"
) -> None:
    one, other = gate(own, "T-1"), gate(own, "T-2")
    machines.broken.add("a")
    receipts = own.fire_many([Firing(one, "coin", "a"), Firing(one, "push", "b"), Firing(other, "coin", "b")])
    drain_all(own.runtime)
    drain_all(own.runtime)
    statuses = [outcome(own, receipt.request_id)["status"] for receipt in receipts]
    assert statuses == ["scheduled", "pending", "applied"]
    machines.broken.clear()
    wake(own, dba)
    assert trail(own, one) == ["coin", "push"]


def test_a_trigger_put_off_by_its_caller_holds_up_nothing(own: Client) -> None:
    turnstile = gate(own)
    own.fire(turnstile, "remove", by="a", after=timedelta(hours=1))
    applied(own, turnstile, "coin", "push")


def test_attempts_used_up_leave_a_dead_request_which_holds_up_nothing_and_can_be_redriven(
    own: Client, dba: "psycopg.Connection[Any]"
) -> None:
    turnstile = gate(own)
    machines.broken.add("a")
    dead, behind = own.fire_many([Firing(turnstile, "coin", "a"), Firing(turnstile, "remove", "b")])
    drain_all(own.runtime)
    for _ in range(2):
        wake(own, dba)
    row = outcome(own, dead.request_id)
    assert (row["status"], row["attempts"]) == ("dead", 3)
    assert row["finished_at"] is not None
    assert outcome(own, behind.request_id)["status"] == "applied"
    with transaction(own.runtime.database) as connection:
        revived = requests.redrive(connection, [dead.request_id])
    assert [each["request_id"] for each in revived] == [dead.request_id]
    drain_all(own.runtime)
    row = outcome(own, dead.request_id)
    assert (row["status"], row["attempts"], row["error"]) == ("rejected", 0, None)  # the gate is removed by now


def test_redriving_touches_only_what_is_dead(own: Client) -> None:
    turnstile = gate(own)
    done = own.fire(turnstile, "coin", by="a")
    drain_all(own.runtime)
    with transaction(own.runtime.database) as connection:
        assert requests.redrive(connection) == []
        assert requests.redrive(connection, [done.request_id, "unknown"]) == []


def wake(client: Client, dba: "psycopg.Connection[Any]") -> int:
    """Let every time pass, run the dispatch sweep, and apply what it woke."""
    make_due(dba)
    dba.execute("DELETE FROM sweeps")
    swept(client.runtime, "dispatch")
    return drain_all(client.runtime)


def poison(dba: "psycopg.Connection[Any]") -> None:
    """From now on PostgreSQL refuses the events of one agent."""
    dba.execute("ALTER TABLE workflow_transitions ADD CONSTRAINT poisoned CHECK (triggered_by <> 'poison')")


def same_partition(client: Client, project: str, count: int) -> list[UUID]:
    """Stories whose triggers share a partition."""
    births = [client.birth("story", f"S-{number}", project=project) for number in range(200 * count)]
    chosen = [birth for birth in births if partition_of(birth.id) == 3][:count]
    assert client.create_many(chosen) == count
    return [birth.id for birth in chosen]


def test_a_row_postgresql_refuses_does_not_hold_up_its_partition(
    client: Client, project: str, dba: "psycopg.Connection[Any]"
) -> None:
    poison(dba)
    first, poisoned, last = same_partition(client, project, 3)
    receipts = client.fire_many(
        [Firing(each, "block", by) for each, by in ((first, "a"), (poisoned, "poison"), (last, "a"))]
    )
    drain_all(client.runtime)
    assert [outcome(client, each.request_id)["status"] for each in receipts] == ["applied", "scheduled", "applied"]
    shown = client.show(poisoned)
    assert "poisoned" in shown["error"]
    assert (shown["current_state"], shown["retry_count"]) == ("analysis", 1)


def test_a_row_postgresql_refuses_is_blamed_on_its_own_request_not_on_those_before_it(
    client: Client, story: UUID, dba: "psycopg.Connection[Any]"
) -> None:
    poison(dba)
    good, bad, behind = client.fire_many(
        [Firing(story, "design_complete", "a"), Firing(story, "start_coding", "poison"), Firing(story, "block", "a")]
    )
    drain_all(client.runtime)
    statuses = [outcome(client, each.request_id)["status"] for each in (good, bad, behind)]
    assert statuses == ["applied", "scheduled", "pending"]
    assert outcome(client, good.request_id)["attempts"] == 0


def test_a_lost_connection_writes_nothing_and_the_same_round_can_be_run_again(
    client: Client, story: UUID, dba: "psycopg.Connection[Any]", monkeypatch: pytest.MonkeyPatch
) -> None:
    receipt = client.fire(story, "design_complete", by="a")
    written = applier.Ledger.write

    def write_and_lose(ledger: applier.Ledger, connection: Any) -> None:
        written(ledger, connection)
        dba.execute("SELECT pg_terminate_backend(%s)", (connection.connection.driver_connection.info.backend_pid,))

    monkeypatch.setattr(applier.Ledger, "write", write_and_lose)
    with pytest.raises(Exception, match=r"terminat|closed") as lost:
        client.runtime.applier.apply_partition(partition_of(story))
    assert applier.retryable(lost.value)
    monkeypatch.undo()
    row = outcome(client, receipt.request_id)
    assert (row["status"], row["attempts"]) == ("pending", 0)
    assert drain_all(client.runtime) == 1


def test_an_instance_moved_around_the_engine_is_a_lost_race_not_a_shrug(
    client: Client, story: UUID, dba: "psycopg.Connection[Any]", monkeypatch: pytest.MonkeyPatch
) -> None:
    receipt = client.fire(story, "design_complete", by="a")
    monkeypatch.setattr(applier.Ledger, "write", _with_stale_versions(applier.Ledger.write))
    drain_all_once(client.runtime, partition_of(story))
    monkeypatch.undo()
    row = outcome(client, receipt.request_id)
    assert row["status"] == "scheduled"
    assert row["error"].startswith("LostRace")
    assert client.show(story)["version"] == 0


def drain_all_once(runtime: Runtime, partition: int) -> None:
    """One look at a partition."""
    runtime.publish(runtime.applier.apply_partition(partition))


def _with_stale_versions(write: Callable[..., None]) -> Callable[..., None]:
    def stale(ledger: applier.Ledger, connection: Any) -> None:
        for locked in ledger.moved.values():
            locked.locked_version += 1
        write(ledger, connection)

    return stale


def test_an_instance_of_a_definition_this_process_does_not_know_is_left_to_one_that_does(
    own: Client, client: Client, story: UUID
) -> None:
    turnstile = gate(own)
    receipt = own.fire(turnstile, "coin", by="a")
    client.fire(story, "design_complete", by="a")
    drain_all(client.runtime)  # a worker of the last release
    row = outcome(own, receipt.request_id)
    assert (row["status"], row["attempts"]) == ("pending", 0)
    assert state(client, story) == "design"
    drain_all(own.runtime)
    assert state(own, turnstile) == "open"


def test_a_round_takes_no_more_than_it_is_told(client: Client, story: UUID) -> None:
    client.fire_many([Firing(story, trigger, "a") for trigger in UP_TO_REVIEW])
    assert [client.runtime.applier.apply_partition(partition_of(story), limit=2).taken for _ in range(3)] == [2, 1, 0]


def test_a_turn_takes_a_partition_to_its_end_whatever_its_length(client: Client, story: UUID) -> None:
    applied(client, story, *UP_TO_REVIEW)
    client.fire_many([Firing(story, ("request_changes", "submit_pr")[n % 2], "a") for n in range(BATCH + 20)])
    assert Drain(client.runtime).partition(partition_of(story)).taken == BATCH + 20


def test_two_partitions_whose_instances_move_each_other_do_not_lock_each_other_up(
    client: Client, project: str, make_runtime: Callable[..., Runtime]
) -> None:
    pairs = []
    for number in range(30):
        story = client.create("story", f"S-{number}", project=project)["id"]
        review = client.create(
            "pr_review", f"PR-{number}", project=project, context={"story_id": f"S-{number}", "author": "ann"}
        )["id"]
        client.fire_many([Firing(story, each, "ann") for each in UP_TO_REVIEW])
        client.fire_many([Firing(review, each, "bob") for each in ("start_review", "approve", "merge")])
        pairs.append((story, review))
    drain_all(client.runtime)
    client.fire_many([Firing(each["held_by"], "approve", "bob") for each in held(client)])
    workers = [make_runtime() for _ in range(3)]

    def work(worker: Runtime) -> None:
        for _ in range(4):
            for partition in range(PARTITIONS):
                worker.publish(worker.applier.apply_partition(partition))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, workers))
    drain_all(client.runtime)
    assert {state(client, story) for story, _ in pairs} == {"testing"}
    assert {state(client, review) for _, review in pairs} == {"merged"}
    verified(client)


def held(client: Client) -> list[Any]:
    """The requests that wait for an approval."""
    with client.runtime.database.connect() as connection:
        return list(
            connection.exec_driver_sql("SELECT * FROM interlock.trigger_requests WHERE held_by IS NOT NULL")
            .mappings()
            .all()
        )


def test_a_round_that_was_rolled_back_is_not_logged_as_applied(
    client: Client, story: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(applier, "log", structlog.get_logger())  # one that has not kept its processors
    client.fire(story, "design_complete", by="a", request_id="r-1")
    partition = partition_of(story)
    with capture_logs() as undone, client.runtime.database.connect() as connection, connection.begin() as transaction_:
        assert client.runtime.applier.round(connection, gather(connection, partition, limit=BATCH)).taken == 1
        transaction_.rollback()
    assert undone == []
    with capture_logs() as done:
        Drain(client.runtime).partition(partition)
    assert [line["event"] for line in done] == ["applied"]
