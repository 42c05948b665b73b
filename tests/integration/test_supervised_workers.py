"""A supervisor's actions: legal ones move the worker, illegal ones answer 409, the same request_id acts once."""

from concurrent.futures import ProcessPoolExecutor
from itertools import product
from typing import Any
from uuid import UUID

import psycopg
import pytest
from uuid_utils.compat import uuid7

from interlock.workers.client.client import Client
from interlock.workers.settings import Settings
from interlock.workers.supervision.actions import ActionOrder
from interlock.workers.supervision.supervised_workers import Supervisor
from interlock.workflows.errors import BadInput, IllegalTransition, RequestConflict, UnknownInstance
from tests.callers import FORKS
from tests.paths import moves
from tests.rights import grant
from tests.supervising import act, acted, leads

pytestmark = pytest.mark.integration

# docs/spec/supervision.md: written down again here, not read from the definition.
WAY_TO = {
    "IDLE": (),
    "RUNNING": ("start",),
    "PAUSED": ("start", "pause"),
    "COMPLETED": ("start", "complete"),
    "FAILED": ("start", "fail"),
    "TERMINATED": ("terminate",),
}
LEADS = moves(
    "IDLE start RUNNING pause PAUSED resume RUNNING complete COMPLETED",
    "RUNNING fail FAILED",
    *(f"{state} terminate TERMINATED" for state in ("IDLE", "RUNNING", "PAUSED")),
)
ORDER = ActionOrder("ann", "why")
ACTIONS = ("start", "pause", "resume", "complete", "fail", "terminate")
LEGAL = {
    "IDLE": ("start_task", "terminate"),
    "RUNNING": ("pause", "complete_tasks", "error_unrecoverable", "terminate"),
    "PAUSED": ("resume", "terminate"),
}


@pytest.fixture
def supervisor(client: Client) -> Supervisor:
    grant(client, "ann")
    return Supervisor(client)


def worker_in(supervisor: Supervisor, project: str, state: str) -> UUID:
    made: UUID = supervisor.create(project=project).subject["id"]
    for action in WAY_TO[state]:
        act(supervisor, action, made)
    return made


@pytest.mark.parametrize(("state", "action"), list(product(WAY_TO, ACTIONS)))
def test_every_action_in_every_state(supervisor: Supervisor, project: str, state: str, action: str) -> None:
    worker = worker_in(supervisor, project, state)
    dest = LEADS.get((state, action))
    offered = leads(supervisor, action, worker, state, dest)
    assert offered == (() if dest else LEGAL.get(state, ()))


@pytest.mark.parametrize("action", ["pause", "resume", "relieve", "terminate"])
def test_what_changes_others_work_must_say_why(supervisor: Supervisor, project: str, action: str) -> None:
    worker = worker_in(supervisor, project, "PAUSED" if action == "resume" else "RUNNING")
    before = supervisor.show(worker)
    with pytest.raises(BadInput, match="say why"):
        getattr(supervisor, action)(worker, ActionOrder("ann"))
    assert supervisor.show(worker) == before


@pytest.mark.parametrize(
    ("by", "reason"), [("ann", ""), ("ann", " "), ("ann", "two\nlines"), ("", "why"), (" ", "why")]
)
def test_an_order_without_a_valid_name_or_reason_is_refused(by: str, reason: str) -> None:
    with pytest.raises(BadInput, match="reason" if by == "ann" else "by"):
        ActionOrder(by, reason)


def test_a_new_worker_is_idle_in_its_workspace(supervisor: Supervisor, project: str) -> None:
    made = supervisor.create(project=project, workspace_id="ws_test").subject
    assert (made["status"], made["workspace_id"]) == ("IDLE", "ws_test")
    assert made["entity_id"].startswith("w_")
    assert supervisor.create(project=project).subject["workspace_id"] == str(project)
    assert [each["id"] for each in supervisor.newest(status="IDLE")][-1] == made["id"]


def test_what_it_holds_is_told_by_its_history_and_given_back_at_its_end(supervisor: Supervisor, project: str) -> None:
    worker = supervisor.create(project=project).subject["id"]
    assert supervisor.start(worker, resources=("gpu-1", "disk")).subject["resources"] == ["disk", "gpu-1"]
    assert supervisor.pause(worker, ORDER).subject["resources"] == ["disk", "gpu-1"]
    assert supervisor.resume(worker, ORDER, resources=("gpu-2",)).subject["resources"] == ["gpu-2"]
    assert supervisor.complete(worker).subject["resources"] == []


@pytest.mark.parametrize("ref", ["no-such-worker", str(uuid7())], ids=["a name", "a UUID"])
def test_a_worker_nobody_made_is_unknown(supervisor: Supervisor, ref: str) -> None:
    with pytest.raises(UnknownInstance):
        supervisor.start(ref)


def test_another_machine_with_the_same_trigger_is_not_touched(
    supervisor: Supervisor, client: Client, project: str
) -> None:
    run = client.create("run", "R-1", project=project)["id"]
    with pytest.raises(UnknownInstance, match="is not a supervised_worker but a run"):
        supervisor.terminate(run, ORDER)


def test_a_repeated_request_gives_the_recorded_answer_even_after_the_worker_moved_on(
    supervisor: Supervisor, project: str
) -> None:
    worker = worker_in(supervisor, project, "RUNNING")
    first = act(supervisor, "pause", worker, request_id=f"{worker}-a", reason="lunch")
    act(supervisor, "resume", worker)
    again = act(supervisor, "pause", worker, request_id=f"{worker}-a", reason="lunch")
    assert (first.replayed, again.replayed) == (False, True)
    assert again.response == first.response
    assert again.subject["status"] == "RUNNING"
    assert [event["trigger"] for event in supervisor.client.history(worker)] == ["start_task", "pause", "resume"]


def test_a_repeated_request_that_was_refused_is_refused_again_even_where_it_would_be_legal_now(
    supervisor: Supervisor, project: str
) -> None:
    worker = worker_in(supervisor, project, "IDLE")
    for _ in range(2):
        with pytest.raises(IllegalTransition) as refusal:
            act(supervisor, "pause", worker, request_id=f"{worker}-p")
        assert refusal.value.state == "IDLE"
        if supervisor.show(worker)["status"] == "IDLE":
            act(supervisor, "start", worker)
    assert supervisor.show(worker)["status"] == "RUNNING"


@pytest.mark.parametrize("changed", [{"reason": "another"}, {"by": "bob"}, {"action": "terminate"}, {"other": "yes"}])
def test_a_request_id_with_another_body_is_refused(
    supervisor: Supervisor, project: str, changed: dict[str, str]
) -> None:
    worker = worker_in(supervisor, project, "IDLE")
    act(supervisor, "start", worker, request_id="r-1", by="ann", reason="work")
    other = supervisor.create(project=project).subject["id"] if "other" in changed else worker
    order = {"request_id": "r-1", "by": "ann", "reason": "work"} | changed
    action, _ = order.pop("action", "start"), order.pop("other", "")
    with pytest.raises(RequestConflict):
        act(supervisor, action, other, **order)


def test_a_repeated_creation_makes_one_worker(supervisor: Supervisor, project: str) -> None:
    order = ActionOrder("ann", request_id="create-1")
    first = supervisor.create(project=project, workspace_id="ws", order=order)
    again = supervisor.create(project=project, workspace_id="ws", order=order)
    assert (first.subject["id"], first.response, first.replayed) == (again.subject["id"], again.response, False)
    assert again.replayed
    with pytest.raises(RequestConflict):
        supervisor.create(project=project, workspace_id="another", order=order)
    assert supervisor.create(project=uuid7(), workspace_id="ws", order=order).subject["id"] != first.subject["id"]


def test_of_many_processes_with_one_request_id_one_acts_and_all_get_its_answer(
    supervisor: Supervisor, project: str, settings: Settings
) -> None:
    worker = worker_in(supervisor, project, "RUNNING")
    with ProcessPoolExecutor(4, mp_context=FORKS) as processes:
        asked = [processes.submit(acted, settings, "pause", str(worker), "together") for _ in range(16)]
        answers = [each.result() for each in asked]
    assert len({answer["event_id"] for answer in answers}) == 1
    assert [event["trigger"] for event in supervisor.client.history(worker)] == ["start_task", "pause"]


def test_a_workspace_must_have_a_name(supervisor: Supervisor, project: str) -> None:
    with pytest.raises(BadInput):
        supervisor.client.birth("supervised_worker", "w", project=project, context={"workspace_id": ""})


def test_the_view_tells_who_moved_and_why(supervisor: Supervisor, project: str, dba: "psycopg.Connection[Any]") -> None:
    worker = worker_in(supervisor, project, "RUNNING")
    act(supervisor, "pause", worker, reason="lunch")
    rows = dba.execute("SELECT from_state, to_state, reason FROM worker_state_transitions ORDER BY id").fetchall()
    assert rows == [("IDLE", "RUNNING", "why"), ("RUNNING", "PAUSED", "lunch")]
