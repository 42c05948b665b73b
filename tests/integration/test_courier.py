"""The courier: a crowd of hints holds up no caller, a head start loses no trigger, closing sends the rest."""

import os
import threading
import time
from typing import Any
from uuid import UUID

import pytest
from redis import Redis

from db.requests import lane_of
from tests.driving import state
from tests.waiting import eventually
from workers import courier as module
from workers.client import Client
from workers.courier import Courier
from workers.hints import Hint
from workers.lanes import Drain

pytestmark = pytest.mark.integration

QUIET = module.CROWDED_SECONDS * 4


class Recorded:
    """Stands where the broker would be: notes what it is given, as slowly as told."""

    flagged = True

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


def test_a_head_start_that_came_too_early_loses_nothing(client: Client, story: UUID, valkey: "Redis") -> None:
    client.fire(story, "design_complete", by="a")  # the first never has one
    Drain(client.runtime).lane(lane_of(story))
    valkey.delete("interlock:triggers")
    no_crowd()
    client.runtime.courier.head_start(hint_of(story))
    eventually(lambda: queued(valkey) == 1)
    Drain(client.runtime).lane(lane_of(story))  # a worker quicker than the commit: it finds nothing

    client.fire(story, "start_coding", by="a")
    client.runtime.courier.flush()
    assert queued(valkey) == 2, "the flag was lowered before that look, so another hint must follow the commit"
    Drain(client.runtime).lane(lane_of(story))
    assert state(client, story) == "implementation"


def test_a_head_start_in_time_makes_the_second_hint_needless(client: Client, story: UUID, valkey: "Redis") -> None:
    client.fire(story, "design_complete", by="a")
    Drain(client.runtime).lane(lane_of(story))
    valkey.delete("interlock:triggers")
    no_crowd()
    client.fire(story, "start_coding", by="a")
    client.runtime.courier.flush()
    assert queued(valkey) == 1


def test_a_head_start_that_could_not_be_sent_takes_no_answer_of_another(
    client: Client, story: UUID, valkey: "Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    hints, answers = client.runtime.hints, client.runtime.redis
    assert answers is not None

    def away(*_: object, **__: object) -> None:
        raise OSError("broken pipe")

    with monkeypatch.context() as broken:
        broken.setattr(client.runtime.app, "send_task", away)
        hints.ahead(hint_of(story))
    assert queued(valkey) == 0
    assert answers.get("interlock:nothing") is None  # not the OK of the flag
    hints.lanes([hint_of(story)])
    assert queued(valkey) == 0, "after a fault the broker is left alone for a moment"


def test_the_first_trigger_and_a_crowd_get_no_head_start() -> None:
    hints = Recorded()
    courier = Courier(hints)  # type: ignore[arg-type]
    courier.head_start({"lane": 1})
    courier.hand([{"lane": 1}])
    courier.head_start({"lane": 2})
    courier.flush()
    assert hints.batches == [[{"lane": 1}]]


def test_a_crowd_does_not_wait_for_a_slow_broker() -> None:
    hints = Recorded(seconds=0.2)
    courier = Courier(hints)  # type: ignore[arg-type]
    courier.hand([{"lane": 0}])
    began = time.monotonic()
    for lane in range(1, 100):
        courier.hand([{"lane": lane}])
    assert time.monotonic() - began < 0.1
    courier.flush()
    assert [hint["lane"] for batch in hints.batches for hint in batch] == list(range(100))
    assert len(hints.batches) < 10


def test_a_fault_does_not_end_the_courier() -> None:
    hints = Recorded(fault=ValueError("no such exchange"))
    courier = Courier(hints)  # type: ignore[arg-type]
    for lane in range(3):
        courier.hand([{"lane": lane}])
        courier.flush()
    assert len(hints.batches) == 3


def test_a_forked_child_has_a_courier_of_its_own(client: Client, story: UUID, valkey: "Redis") -> None:
    hints = Recorded()
    courier = Courier(hints)  # type: ignore[arg-type]
    courier.hand([{"lane": 0}])
    courier.hand([{"lane": 1}])
    courier.flush()
    if (child := os.fork()) == 0:
        courier.hand([{"lane": 2}])
        courier.hand([{"lane": 3}])
        courier.flush()
        os._exit(0 if hints.batches[-1][-1] == {"lane": 3} else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_closing_sends_what_is_left(client: Client, project: UUID, valkey: "Redis") -> None:
    births = [client.birth("story", f"S-{number}", project_id=project) for number in range(40)]
    client.create_many(births)
    for birth in births:
        client.fire(birth.id, "block", by="a")
    client.runtime.close()
    assert queued(valkey) >= len({lane_of(birth.id) for birth in births})
