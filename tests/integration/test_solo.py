"""A trigger node is one process: a guard that hangs does not hold it for ever, and it ends in order."""

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from interlock.db.connection import transaction
from interlock.workers.client.client import Client
from interlock.workers.runtime import Runtime
from tests.nodes import Node, node
from tests.rights import fire
from tests.waiting import eventually

pytestmark = pytest.mark.integration

OWN = ("tests.integration.mines",)
IMPATIENT = "tests.integration.impatient:app"
Solo = Callable[..., AbstractContextManager[Node]]


@pytest.fixture
def own(knowing: Callable[..., Runtime]) -> Iterator[Client]:
    with Client(knowing(*OWN)) as client:
        yield client


@pytest.fixture
def solo(own: Client, tmp_path: Path) -> Solo:
    def start(app: str = IMPATIENT, **env: str) -> AbstractContextManager[Node]:
        words = ("worker", "-Q", "triggers", "--pool", "solo")
        return node(own.runtime.settings, tmp_path, *words, app=app, **env)

    return start


@pytest.fixture
def mine(own: Client, project: str) -> UUID:
    made: UUID = own.create("mine", "M-1", project=project)["id"]
    return made


def step(client: Client, mine: UUID, how: str) -> str:
    return fire(client, mine, "step", by="ann", data={"how": how}).request_id


def request(client: Client, mine: UUID) -> dict[str, Any]:
    return dict(client.show(mine)["requests"][0])


def somebody_waits(client: Client) -> bool:
    waits = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with transaction(client.runtime.database) as connection:
        return connection.exec_driver_sql(waits).first() is not None


def test_a_guard_that_hangs_is_interrupted_and_its_request_tried_again_while_the_node_goes_on(
    own: Client, mine: UUID, project: str, solo: Solo
) -> None:
    with solo() as worker:
        step(own, mine, "waits")
        eventually(lambda: request(own, mine)["status"] == "scheduled")
        assert "SoftTimeLimitExceeded" in request(own, mine)["error"]
        story = own.create("story", "S-1", project=project)["id"]
        done = own.wait([own.fire(story, "design_complete", by="ann").request_id])
        assert done[0].status == "applied"
        assert not worker.ended


@pytest.mark.parametrize(("how", "ended_by"), [("is deaf", signal.SIGKILL), ("loops in C", signal.SIGPROF)])
def test_one_that_does_not_hear_ends_its_node_which_says_where_it_was(
    own: Client, mine: UUID, solo: Solo, how: str, ended_by: signal.Signals
) -> None:
    with solo() as worker:
        step(own, mine, how)
        assert eventually(worker.code) == -ended_by
        assert "_hangs_or_kills" in worker.log.read_text()
    assert request(own, mine)["status"] == "pending", "nothing was written, and nothing is lost"


def test_a_node_that_has_grown_ends_after_its_task(own: Client, mine: UUID, solo: Solo) -> None:
    with solo(MOST_KIB="1") as worker:
        receipt = own.wait([step(own, mine, "not at all")])[0]
        assert receipt.status == "applied"
        eventually(lambda: worker.code() is not None)
        assert worker.code() == 0
        assert "node_has_grown" in worker.log.read_text()


def test_sigterm_lets_the_task_at_work_come_to_its_end(own: Client, mine: UUID, solo: Solo) -> None:
    with solo("interlock.workers.main:app") as worker, transaction(own.runtime.database) as other:
        other.exec_driver_sql("SELECT FROM interlock.workflow_instances WHERE id = %s FOR NO KEY UPDATE", (mine,))
        fired = step(own, mine, "not at all")
        eventually(lambda: somebody_waits(own))
        worker.process.terminate()
        eventually(lambda: "Warm shutdown" in worker.log.read_text())
        other.rollback()
        eventually(lambda: worker.code() is not None)
        assert worker.code() == 0
    assert own.wait([fired])[0].status == "applied"
