"""A worker of the execution engine holds tasks by claims, as any worker does: its end gives them back (UET-7)."""

from typing import Any
from uuid import UUID

import psycopg
import pytest

from interlock.db.connection import transaction
from interlock.db.orchestration import workers
from interlock.workers.client.client import Client
from interlock.workers.overrides.workers import shut_down
from interlock.workers.pool import claims, registration
from interlock.workers.pool.agent import Agent
from interlock.workers.pool.claims import Claim, StaleClaim
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput, NotYours
from tests.crewing import DONE, Site, engine_worker, finish, hand, row, silence, take
from tests.driving import drain_all, state, swept, trail
from tests.rights import OF_SECRET, SECRET, fire, known, operate

pytestmark = pytest.mark.integration
Dba = psycopg.Connection[Any]
LOST = ["scheduler_assigned", "worker_started", "execution_failed"]


@pytest.fixture
def worker(client: Client, project: str) -> UUID:
    return engine_worker(client, project, capabilities=["python"])


@pytest.fixture
def claim(runtime: Runtime, site: Site, worker: UUID) -> Claim:
    """The claim on a task that makes the worker BUSY."""
    site.queue(kind="agent", required_capabilities=["python"])
    return take(runtime, worker)


def load(dba: Dba, worker: UUID) -> int:
    return int(row(dba, "workers", worker)["current_load"])


@pytest.mark.promise("O9")
def test_its_task_is_assigned_by_a_claim_and_completed_by_its_end(
    runtime: Runtime, client: Client, dba: Dba, worker: UUID, claim: Claim
) -> None:
    assert (state(client, worker), state(client, claim.task_id), load(dba, worker)) == ("BUSY", "running", 1)
    assert row(dba, "tasks", claim.task_id)["worker_id"] == worker
    assert client.history(worker)[-1]["metadata"]["task_id"] == str(claim.task_id)
    assert claims.take(runtime, known(worker)) is None  # one task at a time
    finish(runtime, claim)
    assert (state(client, worker), state(client, claim.task_id), load(dba, worker)) == ("IDLE", "completed", 0)
    assert trail(client, worker) == ["initialization_complete", "task_assigned", "task_completed"]


def test_it_speaks_as_an_agent_does(runtime: Runtime, client: Client, site: Site, worker: UUID) -> None:
    (task,) = site.queue(kind="agent")
    agent = Agent.called("U", secret=SECRET, runtime=runtime)
    held = agent.claim()
    assert held is not None
    assert [each.token for each in agent.claims()] == [held.token]
    assert agent.finish(held.token, output={"summary": "thought"}) == "execution_completed"
    drain_all(runtime)
    assert (state(client, task), state(client, worker)) == ("completed", "IDLE")


def test_without_a_claim_it_is_not_busy_and_with_one_it_does_not_end(
    client: Client, site: Site, runtime: Runtime, worker: UUID
) -> None:
    """UET-7: Interlock's own login cannot say so either."""
    task = str(site.queue(kind="agent")[0])

    def missing(trigger: str, **said: str) -> list[str]:
        receipt = fire(client, worker, trigger, by="engine", data=said)
        drain_all(runtime)
        (settled,) = client.wait([receipt.request_id], timeout_seconds=0)
        return list((settled.result or {})["missing"])

    assert missing("task_assigned") == ["task_named", "holds_a_task"]
    assert missing("task_assigned", task_id=task) == ["holds_a_task"]
    take(runtime, worker)
    assert missing("task_completed") == ["holds_no_task"]
    with pytest.raises(NotYours):
        client.fire(worker, "task_completed", by="U", proof=f"secret:{SECRET}")


@pytest.mark.parametrize("draining", [False, True])
@pytest.mark.promise("O9")
def test_a_crash_gives_its_task_back_at_once(
    runtime: Runtime, client: Client, dba: Dba, worker: UUID, claim: Claim, draining: bool
) -> None:
    if draining:
        assert registration.drain(runtime, known(worker)) == 1
        drain_all(runtime)
        assert state(client, worker) == "DRAINING"
    silence(dba, worker, 121)
    dba.execute("DELETE FROM sweeps")
    assert swept(runtime, "heartbeats") == 1
    drain_all(runtime)
    assert (state(client, worker), state(client, claim.task_id), load(dba, worker)) == ("TERMINATED", "retrying", 0)
    assert trail(client, worker)[-1] == "worker_crashed"
    assert row(dba, "tasks", claim.task_id)["last_error"] == "worker U fell silent"
    crash = client.history(worker)[-1]["metadata"]
    assert (crash["crash_detected"], crash["heartbeat_status"]) == (True, "silent")
    with pytest.raises(StaleClaim):
        claims.finish(runtime, known(worker), claim.token, DONE)


def test_however_it_was_ended_its_task_is_given_back(
    runtime: Runtime, client: Client, dba: Dba, worker: UUID, claim: Claim
) -> None:
    """WORKER-12."""
    fire(client, worker, "worker_crashed", by="engine")
    drain_all(runtime)
    assert state(client, worker) == "TERMINATED"
    dba.execute("DELETE FROM sweeps")
    assert swept(runtime, "heartbeats") == 1
    drain_all(runtime)
    assert (trail(client, claim.task_id), load(dba, worker)) == (LOST, 0)
    assert row(dba, "tasks", claim.task_id)["last_error"] == "worker U has ended"
    dba.execute("DELETE FROM sweeps")
    assert swept(runtime, "heartbeats") == 0


def test_draining_it_finishes_its_task_takes_no_other_and_ends(
    runtime: Runtime, client: Client, site: Site, worker: UUID, claim: Claim
) -> None:
    (waiting,) = site.queue(kind="agent")
    assert registration.drain(runtime, known(worker)) == 1
    assert claims.take(runtime, known(worker)) is None
    drain_all(runtime)
    assert state(client, worker) == "DRAINING"
    finish(runtime, claim)
    assert trail(client, worker)[-2:] == ["shutdown_requested", "task_completed"]
    states = [state(client, each) for each in (worker, claim.task_id, waiting)]
    assert states == ["TERMINATED", "completed", "queued"]


def test_a_request_of_its_own_to_end_drains_it_too(
    runtime: Runtime, client: Client, worker: UUID, claim: Claim
) -> None:
    """UET-5, however it was asked."""
    client.fire(worker, "shutdown_requested", by="U", proof=f"secret:{SECRET}")
    drain_all(runtime)
    assert state(client, worker) == "DRAINING"
    finish(runtime, claim)
    assert state(client, worker) == "TERMINATED"


def test_an_operator_ends_it_now_and_its_task_is_given_back(
    runtime: Runtime, client: Client, worker: UUID, claim: Claim
) -> None:
    operate(runtime, "ann")
    assert shut_down(runtime, "U", by="ann", reason="enough", now=True) == 0
    drain_all(runtime)
    assert (state(client, worker), state(client, claim.task_id)) == ("TERMINATED", "retrying")
    assert trail(client, worker)[-2:] == ["shutdown_requested", "task_completed"]
    assert client.history(worker)[-2]["metadata"]["reason"] == "enough"


def test_it_takes_tasks_of_its_own_project_that_fit_it_and_commands_it_does_not(
    runtime: Runtime, client: Client, site: Site, worker: UUID
) -> None:
    """UET-9, WORKER-3."""
    site.queue()
    site.queue(kind="agent", required_capabilities=["rust"])
    site.queue(kind="agent", affinity=["somebody-else"])
    Site(client, f"other-{site.project}").queue(kind="agent")
    assert claims.take(runtime, known(worker)) is None
    (fits,) = site.queue(kind="agent", affinity=["U"])
    assert take(runtime, worker).task_id == fits


def test_capabilities_that_interlock_gives_are_not_to_be_had_by_asking(client: Client, project: str) -> None:
    with pytest.raises(BadInput, match="none of which begins with interlock:"):
        client.create("uet_worker", "U", project=project, context={**OF_SECRET, "capabilities": ["interlock:execute"]})


@pytest.mark.promise("O9")
def test_it_is_listed_found_and_counted_with_the_others(
    runtime: Runtime, client: Client, project: str, worker: UUID
) -> None:
    other = hand(runtime)
    assert registration.find(runtime, "U")["worker_id"] == worker
    assert registration.find(runtime, str(worker))["worker_id"] == worker
    with transaction(runtime.database) as connection:
        assert {each["worker_id"] for each in workers.page(connection)} >= {worker, other}
        assert workers.count_by_state(connection) == {"IDLE": 1, "idle": 1}
