"""The wakeup_sender: a crowd of wakeups holds up no caller, a head start loses none, closing sends the rest."""

import gc
import json
import os
import signal
import threading
import time
from base64 import b64decode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from redis import Redis

from interlock.db.core.requests import partition_of
from interlock.workers.broker import wakeup_sender as module
from interlock.workers.broker import wakeups
from interlock.workers.broker.wakeup_sender import WakeupSender
from interlock.workers.broker.wakeups import Wakeup
from interlock.workers.client import partition_drainer
from interlock.workers.client.client import Client
from interlock.workers.client.partition_drainer import Drain
from interlock.workers.engine.trigger_request import Firing
from interlock.workers.runtime import Runtime
from tests.driving import state
from tests.waiting import eventually

pytestmark = pytest.mark.integration

QUIET = module.CROWDED_SECONDS * 4


class Recorded:
    """Stands where the broker would be: notes what it is given, as slowly as told."""

    def __init__(
        self, seconds: float = 0.0, fault: Exception | None = None, until: threading.Event | None = None
    ) -> None:
        self.batches: list[list[Wakeup]] = []
        self._seconds, self._fault, self._until = seconds, fault, until

    def partitions(self, wakeups: Any) -> None:
        if self._until:
            self._until.wait()
        threading.Event().wait(self._seconds)
        self.batches.append(list(wakeups))
        if self._fault:
            raise self._fault

    def ahead(self, wakeup: Wakeup) -> None:
        self.partitions([wakeup])


class Clock:
    """The wakeup_sender's clock: it stands until it is moved, however busy the machine is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = time.monotonic()
        monkeypatch.setattr(module, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def no_crowd() -> None:
    """Let so much time pass that the next trigger is a lone one."""
    since = time.monotonic()
    eventually(lambda: time.monotonic() - since > QUIET)


def sending() -> set[object]:
    """The threads that send wake-ups, and what each carries. Those of clients that other tests dropped may end now."""
    threads = (each for each in threading.enumerate() if each.name == "interlock-wakeup-sender")
    return {*threads, *module._CARRYING}


def is_none_beside(before: set[object]) -> bool:
    return sending() <= before


def queued(valkey: "Redis") -> int:
    return int(valkey.llen("interlock:triggers"))


def wakeup_of(story: UUID) -> dict[str, Any]:
    return {
        "request_id": "r-1",
        "partition": partition_of(story),
        "workflow_type": "story",
        "entity_id": "S-1",
        "trigger": "design_complete",
        "triggered_by": "a",
        "status": "pending",
    }


def test_a_worker_that_comes_before_the_commit_looks_until_it_is_there(
    client: Client, story: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_drainer, "LOOK_SECONDS", 30.0)  # the first connection takes a while
    with ThreadPoolExecutor(1) as other:
        worker = other.submit(Drain(client.runtime).partition, partition_of(story), early="r-1")
        assert not worker.done()
        client.fire(story, "design_complete", by="a", request_id="r-1")
        assert worker.result().taken == 1
    assert state(client, story) == "design"


def test_it_looks_for_a_moment_only(client: Client, story: UUID) -> None:
    began = time.monotonic()
    assert Drain(client.runtime).partition(partition_of(story), early="never").taken == 0
    assert time.monotonic() - began >= wakeups.LOOK_SECONDS > wakeups.COMMIT_SECONDS


def test_it_does_not_look_for_what_another_has_applied(
    client: Client, story: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.fire(story, "design_complete", by="a", request_id="r-1")
    drain = Drain(client.runtime)
    assert drain.partition(partition_of(story)).taken == 1
    monkeypatch.setattr(partition_drainer, "LOOK_SECONDS", 60.0)
    assert drain.partition(partition_of(story), early="r-1").taken == 0


def test_it_finds_its_own_among_those_that_came_before(client: Client, story: UUID) -> None:
    client.fire(story, "design_complete", by="a", request_id="r-1")
    client.fire(story, "start_coding", by="a", request_id="r-2")
    assert Drain(client.runtime).partition(partition_of(story), early="r-2").taken == 2


def test_a_commit_that_took_long_is_hinted_at_anew(clock: Clock) -> None:
    broker = Recorded()
    wakeup_sender = WakeupSender(broker)  # type: ignore[arg-type]
    wakeup_sender.send([{"partition": 1}], ahead_since=clock.now)
    assert broker.batches == []
    wakeup_sender.send([{"partition": 1}], ahead_since=clock.now - 2 * wakeups.COMMIT_SECONDS)
    wakeup_sender.flush()
    assert broker.batches == [[{"partition": 1}]]


def test_a_lone_trigger_has_one_wakeup_and_it_comes_early(
    client: Client, story: UUID, valkey: "Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "interlock.workers.broker.wakeup_sender.COMMIT_SECONDS", 60.0
    )  # a busy machine may commit later than that
    client.fire(story, "design_complete", by="a")  # the first never has a head start
    Drain(client.runtime).partition(partition_of(story))
    valkey.delete("interlock:triggers")
    no_crowd()
    client.fire(story, "start_coding", by="a", request_id="r-1")
    client.runtime.wakeup_sender.flush()
    (message,) = valkey.lrange("interlock:triggers", 0, -1)  # type: ignore[misc]
    assert json.loads(b64decode(json.loads(message)["body"]))[0] == [partition_of(story), "r-1", True]
    assert valkey.keys("interlock:woken:*") == []
    assert Drain(client.runtime).partition(partition_of(story), early="r-1").taken == 1


def test_a_head_start_that_could_not_be_sent_leaves_the_broker_alone_for_a_moment(
    client: Client, story: UUID, valkey: "Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> None:
        raise OSError("broken pipe")

    with monkeypatch.context() as broken:
        broken.setattr(client.runtime.app, "send_task", away)
        client.runtime.wakeups.ahead(wakeup_of(story))
    client.runtime.wakeups.partitions([wakeup_of(story)])
    assert queued(valkey) == 0


def test_the_first_trigger_and_a_crowd_get_no_head_start(clock: Clock) -> None:
    broker = Recorded()
    wakeup_sender = WakeupSender(broker)  # type: ignore[arg-type]
    assert wakeup_sender.head_start({"partition": 1}) is None
    wakeup_sender.send([{"partition": 1}])
    assert wakeup_sender.head_start({"partition": 2}) is None
    wakeup_sender.flush()
    assert broker.batches == [[{"partition": 1}]]


def test_what_comes_at_the_same_moment_as_a_head_start_is_a_crowd(clock: Clock) -> None:
    broker = Recorded()
    wakeup_sender = WakeupSender(broker)  # type: ignore[arg-type]
    wakeup_sender.send([{"partition": 1}])
    clock.now += QUIET
    assert wakeup_sender.head_start({"partition": 2}) is not None
    assert wakeup_sender.head_start({"partition": 3}) is None
    wakeup_sender.flush()
    assert broker.batches == [[{"partition": 1}], [{"partition": 2}]]


def test_a_crowd_does_not_wait_for_a_slow_broker(clock: Clock) -> None:
    broker = Recorded(seconds=0.2)
    wakeup_sender = WakeupSender(broker)  # type: ignore[arg-type]
    wakeup_sender.send([{"partition": 0}])
    began = time.monotonic()
    for partition in range(1, 100):
        wakeup_sender.send([{"partition": partition}])
    assert time.monotonic() - began < 10  # of twenty, if each waited
    wakeup_sender.flush()
    assert [wakeup["partition"] for batch in broker.batches for wakeup in batch] == list(range(100))
    assert len(broker.batches) < 10


def test_a_fault_does_not_end_the_wakeup_sender() -> None:
    broker = Recorded(fault=ValueError("no such exchange"))
    wakeup_sender = WakeupSender(broker)  # type: ignore[arg-type]
    for partition in range(3):
        wakeup_sender.send([{"partition": partition}])
        wakeup_sender.flush()
    assert len(broker.batches) == 3


def test_a_forked_child_has_a_wakeup_sender_of_its_own(clock: Clock) -> None:
    broker = Recorded()
    wakeup_sender = WakeupSender(broker)  # type: ignore[arg-type]
    wakeup_sender.send([{"partition": 0}])
    wakeup_sender.send([{"partition": 1}])
    wakeup_sender.flush()
    if (child := os.fork()) == 0:
        wakeup_sender.send([{"partition": 2}])
        wakeup_sender.send([{"partition": 3}])
        wakeup_sender.flush()
        began = len(sending())
        wakeup_sender.close()
        os._exit(0 if broker.batches[-1][-1] == {"partition": 3} and (began, len(sending())) == (2, 0) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_child_forked_while_another_thread_queues_something_can_send() -> None:
    wakeup_sender, entered = WakeupSender(Recorded(), always_from_thread=True), threading.Event()  # type: ignore[arg-type]

    def queue_slowly() -> None:
        with module._CHANGING:
            entered.set()
            threading.Event().wait(0.2)

    with ThreadPoolExecutor(1) as others:
        others.submit(queue_slowly)
        entered.wait()
        if (child := os.fork()) == 0:
            signal.alarm(10)  # which ends it, if it waits for a lock whose thread it does not have
            wakeup_sender.send([{"partition": 1}])
            wakeup_sender.close()
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    wakeup_sender.close()


def test_a_closed_client_leaves_no_thread_and_nothing_for_the_exit(
    make_runtime: Callable[..., Runtime], story: UUID, valkey: "Redis"
) -> None:
    before = sending()
    for _ in range(3):
        with Client(make_runtime()) as client:
            client.fire_many([Firing(story, "block", "a", f"r-{number}") for number in range(3)])
            client.runtime.wakeup_sender.ahead([wakeup_of(story)])
            assert len(sending() - before) == 2
        assert is_none_beside(before)
    assert queued(valkey) >= 1


def test_a_sender_that_is_closed_or_dropped_sends_what_is_queued_and_its_thread_ends() -> None:
    for dropped in (False, True):
        before, broker = sending(), Recorded(seconds=0.1)
        wakeup_sender = WakeupSender(broker, always_from_thread=True)  # type: ignore[arg-type]
        for partition in range(3):
            wakeup_sender.ahead([{"partition": partition, "status": "pending"}])
        wakeup_sender.send([{"partition": 3}])
        if not dropped:
            wakeup_sender.close()
        else:
            del wakeup_sender
            gc.collect()
        eventually(partial(is_none_beside, before))
        assert broker.batches == [[{"partition": each, "status": "pending"}] for each in range(3)] + [
            [{"partition": 3}]
        ]


def test_closing_waits_for_a_slow_broker_for_a_moment_only_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FLUSH_SECONDS", 0.01)
    before, answers = sending(), threading.Event()
    broker = Recorded(until=answers)
    wakeup_sender = WakeupSender(broker, always_from_thread=True)  # type: ignore[arg-type]
    for partition in range(3):
        wakeup_sender.ahead([{"partition": partition, "status": "pending"}])
    wakeup_sender.close()
    wakeup_sender.send([{"partition": 3}])  # whoever goes on has a thread again
    assert len(sending() - before) == 4
    answers.set()
    wakeup_sender.close()
    eventually(partial(is_none_beside, before))
    assert sorted(each["partition"] for (each,) in broker.batches) == [0, 1, 2, 3]


def test_a_sender_closed_by_one_thread_while_others_send_loses_nothing() -> None:
    before, broker = sending(), Recorded()
    wakeup_sender = WakeupSender(broker, always_from_thread=True)  # type: ignore[arg-type]

    def send(first: int) -> None:
        for partition in range(first, first + 500):
            wakeup_sender.send([{"partition": partition}])

    with ThreadPoolExecutor(2) as others:
        sent = [others.submit(send, first) for first in (0, 500)]
        while not all(each.done() for each in sent):
            wakeup_sender.close()
    wakeup_sender.close()
    eventually(partial(is_none_beside, before))
    assert sorted(each["partition"] for batch in broker.batches for each in batch) == list(range(1000))


def test_closing_sends_what_is_left(client: Client, project: str, valkey: "Redis") -> None:
    births = [client.birth("story", f"S-{number}", project=project) for number in range(40)]
    client.create_many(births)
    for birth in births:
        client.fire(birth.id, "block", by="a")
    client.runtime.close()
    assert queued(valkey) >= len({partition_of(birth.id) for birth in births})
