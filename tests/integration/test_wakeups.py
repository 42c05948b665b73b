"""Wakeups: one for each partition that has none waiting, readable in Flower, and never worth failing for."""

import base64
import json
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from redis import Redis

from interlock.db.core.requests import partition_of
from interlock.workers import tasks
from interlock.workers.broker import wakeups as module
from interlock.workers.client.client import Client
from interlock.workers.client.partition_drainer import Drain
from interlock.workers.engine.trigger_request import Firing
from interlock.workers.runtime import Runtime
from tests.driving import applied, drain_all, state
from tests.nodes import Node
from tests.rights import fire
from tests.waiting import eventually

pytestmark = pytest.mark.integration


def queued(valkey: "Redis", queue: str = "triggers") -> list[dict[str, Any]]:
    """The messages in a queue, oldest first."""
    return [json.loads(message) for message in reversed(valkey.lrange(f"interlock:{queue}", 0, -1))]  # type: ignore[arg-type]


def test_a_wakeup_says_what_it_is_about_in_words(client: Client, story: UUID, valkey: "Redis") -> None:
    receipt = client.fire(story, "design_complete", by="agent-7")
    (message,) = queued(valkey)
    headers = message["headers"]
    assert headers["task"] == "interlock.apply"
    assert headers["shadow"] == "story.design_complete"
    assert headers["argsrepr"] == "(story/S-1 design_complete by agent-7)"
    assert headers["id"] == receipt.request_id
    assert message["content-type"] == "application/json"
    assert json.loads(base64.b64decode(message["body"]))[0] == [partition_of(story), receipt.request_id, False]


def test_while_a_wakeup_waits_its_partition_gets_no_other(
    client: Client, story: UUID, valkey: "Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    # One that got a head start has nothing to do with flags.
    monkeypatch.setattr(client.runtime.wakeup_sender, "head_start", lambda _wakeup: None)
    for trigger in ("design_complete", "start_coding", "submit_pr"):
        client.fire(story, trigger, by="a")
    client.runtime.wakeup_sender.flush()
    assert len(queued(valkey)) == 1
    Drain(client.runtime).partition(partition_of(story))
    assert state(client, story) == "review"
    client.fire(story, "request_changes", by="a")
    client.runtime.wakeup_sender.flush()
    assert len(queued(valkey)) == 2  # the first is still there, spent; the flag was lowered


def test_a_flag_whose_wakeup_was_lost_runs_out(client: Client, story: UUID, valkey: "Redis") -> None:
    client.fire(story, "design_complete", by="a")
    (flag,) = valkey.keys("interlock:woken:*")  # type: ignore[misc]
    assert 0 < int(valkey.pttl(flag)) <= module.FLAG_MILLISECONDS


def test_many_triggers_at_once_wakeup_each_of_their_partitions_once(
    client: Client, project: str, valkey: "Redis"
) -> None:
    births = [client.birth("story", f"S-{number}", project=project) for number in range(100)]
    client.create_many(births)
    client.fire_many([Firing(birth.id, "block", "a") for birth in births])
    client.runtime.wakeup_sender.flush()
    partitions = [json.loads(base64.b64decode(message["body"]))[0][0] for message in queued(valkey)]
    assert sorted(partitions) == sorted({partition_of(birth.id) for birth in births})


def test_a_trigger_for_later_sends_no_wakeup(client: Client, story: UUID, valkey: "Redis") -> None:
    client.fire(story, "block", by="a", after=timedelta(hours=1))
    assert queued(valkey) == []


def test_a_follow_up_is_hinted_to_its_own_partition(client: Client, project: str, valkey: "Redis") -> None:
    sprint = client.create("sprint", "P-1", project=project)["id"]
    fire(client, sprint, "start", by="ann")
    drain_all(client.runtime)
    (waiting,) = client.show(sprint)["requests"]
    client.fire(waiting["held_by"], "approve", by="bob")
    client.runtime.wakeup_sender.flush()  # its own wake-up, which a thread sends
    valkey.flushall()
    done = client.runtime.applier.apply_partition(partition_of(waiting["held_by"]))
    client.runtime.publish(done)
    assert [message["headers"]["shadow"] for message in queued(valkey)] == ["sprint.start"]


def test_a_broker_that_is_down_is_not_tried_for_each_trigger(
    make_runtime: Callable[..., Runtime], project: str
) -> None:
    client = Client(make_runtime(broker_url="redis://127.0.0.1:1/0"))
    story = client.create("story", "S-1", project=project)["id"]
    client.fire(story, "block", by="a")
    began = time.monotonic()
    for _ in range(20):
        client.fire(story, "unblock", by="a")
    assert time.monotonic() - began < 10


def test_a_real_worker_applies_what_is_fired_and_runs_its_effects(
    celery_worker: Node, client: Client, story: UUID
) -> None:
    receipts = client.fire_many([Firing(story, trigger, "a") for trigger in ("design_complete", "tests_pass", "block")])
    settled = client.wait([receipt.request_id for receipt in receipts], timeout_seconds=20)
    assert [receipt.status for receipt in settled] == ["applied", "rejected", "applied"]
    eventually(lambda: [effect["status"] for effect in client.show(story)["effects"]] == ["done"])


def test_a_forged_wakeup_changes_nothing(celery_worker: Node, client: Client, story: UUID, runtime: Runtime) -> None:
    for args in ([partition_of(story), "no-such-request"], [99, ""], [-1, ""]):
        runtime.app.send_task("interlock.apply", args=args)
    runtime.app.send_task("interlock.effect", args=[str(story)])
    applied_by_worker = client.fire(story, "design_complete", by="a")
    assert client.wait([applied_by_worker.request_id], timeout_seconds=20)[0].status == "applied"
    assert client.show(story)["version"] == 1


def test_the_bus_is_told_by_real_workers_too(
    celery_worker: Node, client: Client, story: UUID, project: str, valkey: "Redis"
) -> None:
    with valkey.pubsub(ignore_subscribe_messages=True) as bus:
        bus.subscribe(f"project:{project}")
        eventually(lambda: valkey.pubsub_numsub(f"project:{project}")[0][1] == 1)
        client.fire(story, "block", by="a")
        message = eventually(lambda: bus.get_message(timeout=1), timeout=20)
    assert json.loads(message["data"]) == {
        "type": "workflow_transition",
        "workflow_id": str(story),
        "new_state": "blocked",
    }


def test_a_drained_partition_has_no_flag(client: Client, story: UUID, valkey: "Redis") -> None:
    client.fire(story, "design_complete", by="a")
    Drain(client.runtime).partition(partition_of(story))
    assert valkey.keys("interlock:woken:*") == []
    applied(client, story, "start_coding")


def test_a_wake_up_whose_trigger_another_task_took_says_what_became_of_it(
    client: Client, story: UUID, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "runtime", lambda: runtime)
    monkeypatch.setattr(tasks, "_drain", lambda: Drain(runtime))
    tasks.register(runtime.app)
    receipt = client.fire(story, "design_complete", by="a")
    Drain(runtime).partition(partition_of(story))
    woken = runtime.app.tasks["interlock.apply"].apply(args=[partition_of(story), receipt.request_id], throw=True)
    assert repr(woken.result) == "applied: analysis → design"
