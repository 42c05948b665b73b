"""The courier: a crowd of hints holds up no caller, a head start loses none, closing sends the rest."""

import json
import os
import threading
import time
from base64 import b64decode
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest
from redis import Redis

from db.requests import lane_of
from tests.driving import state
from tests.waiting import eventually
from workers import courier as module
from workers import hints, lanes
from workers.client import Client
from workers.courier import Courier
from workers.hints import Hint
from workers.lanes import Drain

pytestmark = pytest.mark.integration

QUIET = module.CROWDED_SECONDS * 4


class Recorded:
    """Stands where the broker would be: notes what it is given, as slowly as told."""

    def __init__(self, seconds: float = 0.0, fault: Exception | None = None) -> None:
        self.batches: list[list[Hint]] = []
        self._seconds, self._fault = seconds, fault

    def lanes(self, hints: Any) -> None:
        threading.Event().wait(self._seconds)
        self.batches.append(list(hints))
        if self._fault:
            raise self._fault

    def ahead(self, hint: Hint) -> None:
        self.lanes([hint])


@pytest.fixture
def story(client: Client, project: UUID) -> UUID:
    made: UUID = client.create("story", "S-1", project_id=project)["id"]
    return made


def no_crowd() -> None:
    """Let so much time pass that the next trigger is a lone one."""
    since = time.monotonic()
    eventually(lambda: time.monotonic() - since > QUIET)


def queued(valkey: "Redis") -> int:
    return int(valkey.llen("interlock:triggers"))


def hint_of(story: UUID) -> dict[str, Any]:
    return {
        "request_id": "r-1",
        "lane": lane_of(story),
        "workflow_type": "story",
        "entity_id": "S-1",
        "trigger": "design_complete",
        "triggered_by": "a",
        "status": "pending",
    }


def test_a_worker_that_comes_before_the_commit_looks_until_it_is_there(
    client: Client, story: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "LOOK_SECONDS", 30.0)  # the first connection takes a while
    with ThreadPoolExecutor(1) as other:
        worker = other.submit(Drain(client.runtime).lane, lane_of(story), early="r-1")
        assert not worker.done()
        client.fire(story, "design_complete", by="a", request_id="r-1")
        assert worker.result() == 1
    assert state(client, story) == "design"


def test_it_looks_for_a_moment_only(client: Client, story: UUID) -> None:
    began = time.monotonic()
    assert Drain(client.runtime).lane(lane_of(story), early="never") == 0
    assert time.monotonic() - began >= hints.LOOK_SECONDS > hints.COMMIT_SECONDS


def test_it_does_not_look_for_what_another_has_applied(
    client: Client, story: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.fire(story, "design_complete", by="a", request_id="r-1")
    drain = Drain(client.runtime)
    assert drain.lane(lane_of(story)) == 1
    monkeypatch.setattr(lanes, "LOOK_SECONDS", 60.0)
    assert drain.lane(lane_of(story), early="r-1") == 0


def test_it_finds_its_own_among_those_that_came_before(client: Client, story: UUID) -> None:
    client.fire(story, "design_complete", by="a", request_id="r-1")
    client.fire(story, "start_coding", by="a", request_id="r-2")
    assert Drain(client.runtime).lane(lane_of(story), early="r-2") == 2


def test_a_commit_that_took_long_is_hinted_at_anew() -> None:
    broker = Recorded()
    courier = Courier(broker)  # type: ignore[arg-type]
    now = time.monotonic()
    courier.hand([{"lane": 1}], ahead_since=now)
    assert broker.batches == []
    courier.hand([{"lane": 1}], ahead_since=now - 2 * hints.COMMIT_SECONDS)
    courier.flush()
    assert broker.batches == [[{"lane": 1}]]


def test_a_lone_trigger_has_one_hint_and_it_comes_early(client: Client, story: UUID, valkey: "Redis") -> None:
    client.fire(story, "design_complete", by="a")  # the first never has a head start
    Drain(client.runtime).lane(lane_of(story))
    valkey.delete("interlock:triggers")
    no_crowd()
    client.fire(story, "start_coding", by="a", request_id="r-1")
    client.runtime.courier.flush()
    (message,) = valkey.lrange("interlock:triggers", 0, -1)  # type: ignore[misc]
    assert json.loads(b64decode(json.loads(message)["body"]))[0] == [lane_of(story), "r-1", True]
    assert valkey.keys("interlock:hinted:*") == []
    assert Drain(client.runtime).lane(lane_of(story), early="r-1") == 1


def test_a_head_start_that_could_not_be_sent_leaves_the_broker_alone_for_a_moment(
    client: Client, story: UUID, valkey: "Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> None:
        raise OSError("broken pipe")

    with monkeypatch.context() as broken:
        broken.setattr(client.runtime.app, "send_task", away)
        client.runtime.hints.ahead(hint_of(story))
    client.runtime.hints.lanes([hint_of(story)])
    assert queued(valkey) == 0


def test_the_first_trigger_and_a_crowd_get_no_head_start() -> None:
    broker = Recorded()
    courier = Courier(broker)  # type: ignore[arg-type]
    assert courier.head_start({"lane": 1}) is None
    courier.hand([{"lane": 1}])
    assert courier.head_start({"lane": 2}) is None
    courier.flush()
    assert broker.batches == [[{"lane": 1}]]


def test_what_comes_at_the_same_moment_as_a_head_start_is_a_crowd() -> None:
    broker = Recorded()
    courier = Courier(broker)  # type: ignore[arg-type]
    courier.hand([{"lane": 1}])
    no_crowd()
    assert courier.head_start({"lane": 2}) is not None
    assert courier.head_start({"lane": 3}) is None
    courier.flush()
    assert broker.batches == [[{"lane": 1}], [{"lane": 2}]]


def test_a_crowd_does_not_wait_for_a_slow_broker() -> None:
    broker = Recorded(seconds=0.2)
    courier = Courier(broker)  # type: ignore[arg-type]
    courier.hand([{"lane": 0}])
    began = time.monotonic()
    for lane in range(1, 100):
        courier.hand([{"lane": lane}])
    assert time.monotonic() - began < 0.1
    courier.flush()
    assert [hint["lane"] for batch in broker.batches for hint in batch] == list(range(100))
    assert len(broker.batches) < 10


def test_a_fault_does_not_end_the_courier() -> None:
    broker = Recorded(fault=ValueError("no such exchange"))
    courier = Courier(broker)  # type: ignore[arg-type]
    for lane in range(3):
        courier.hand([{"lane": lane}])
        courier.flush()
    assert len(broker.batches) == 3


def test_a_forked_child_has_a_courier_of_its_own(client: Client, story: UUID, valkey: "Redis") -> None:
    broker = Recorded()
    courier = Courier(broker)  # type: ignore[arg-type]
    courier.hand([{"lane": 0}])
    courier.hand([{"lane": 1}])
    courier.flush()
    if (child := os.fork()) == 0:
        courier.hand([{"lane": 2}])
        courier.hand([{"lane": 3}])
        courier.flush()
        os._exit(0 if broker.batches[-1][-1] == {"lane": 3} else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_closing_sends_what_is_left(client: Client, project: UUID, valkey: "Redis") -> None:
    births = [client.birth("story", f"S-{number}", project_id=project) for number in range(40)]
    client.create_many(births)
    for birth in births:
        client.fire(birth.id, "block", by="a")
    client.runtime.close()
    assert queued(valkey) >= len({lane_of(birth.id) for birth in births})
