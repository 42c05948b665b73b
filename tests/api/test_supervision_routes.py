"""Supervised workers and jobs over HTTP: the moves of the machines, in the token's name and by its right."""

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import pytest
from httpx import Response

from interlock.db.core.request_rows import as_found
from interlock.workers.access.tokens import find
from interlock.workers.client.client import Client
from interlock.workers.client.operations import acting, fire_by_right
from interlock.workers.engine.trigger_request import Firing
from interlock.workers.overrides.brakes import put_brake, release_brake
from interlock.workers.overrides.tokens import revoke_tokens
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workflows.errors import NotYours
from tests.calling import Calls, token
from tests.driving import drain_all

pytestmark = pytest.mark.integration
WHY = {"reason": "memory is short"}


@pytest.fixture
def ann_calls(call: Calls, client: Client) -> Calls:
    """Calls in the name of an operator."""
    call.token = token(client.runtime, "ann", "operator")
    return call


def done(answer: Response, status: int = 200) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    return dict(answer.json())


def worker(call: Calls, **terms: object) -> dict[str, Any]:
    return done(call("POST", "/api/workers", json=terms), 201)


def running_job(call: Calls) -> tuple[dict[str, Any], dict[str, Any]]:
    """A running job with one worker; returns both."""
    own, job = worker(call), done(call("POST", "/api/jobs", json={"description": "build"}), 201)
    for action in ("validate", "allocate"):
        done(call("POST", f"/api/jobs/{job['id']}/{action}", json={}))
    return own, job


def newest(client: Client, found: Mapping[str, Any]) -> Mapping[str, Any]:
    return client.history(found["id"])[-1]


def test_a_worker_is_created_started_paused_and_resumed(ann_calls: Calls, client: Client) -> None:
    made = worker(ann_calls, workspace_id="ws_test", capacity=2)
    assert (made["status"], len(made["secret"]), made["from_state"]) == ("IDLE", 43, None)
    started = done(ann_calls("POST", f"/api/workers/{made['entity_id']}/start", json={"resources": ["gpu-0"]}))
    assert (started["from_state"], started["status"], started["id"]) == ("IDLE", "RUNNING", made["id"])
    paused = done(ann_calls("POST", f"/api/supervisor/workers/{made['id']}/pause", json=WHY))
    assert paused["status"] == "PAUSED"
    event = newest(client, made)
    assert (event["triggered_by"], event["metadata"]["reason"]) == ("ann", "memory is short")
    assert event["proof"].startswith("token:")
    assert done(ann_calls("POST", f"/api/supervisor/workers/{made['id']}/resume", json=WHY))["status"] == "RUNNING"
    shown = done(ann_calls("GET", f"/api/workers/{made['id']}"))
    assert (shown["status"], shown["resources"], shown["workspace_id"]) == ("RUNNING", ["gpu-0"], "ws_test")
    assert client.verify(made["id"]) == ()


def test_the_same_request_id_acts_once_and_gets_the_same_answer(ann_calls: Calls, client: Client) -> None:
    first = ann_calls("POST", "/api/workers", json={"request_id": "w-1"})
    again = ann_calls("POST", "/api/workers", json={}, headers={"Idempotency-Key": "w-1"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == first.json() | {"secret": None}
    done(ann_calls("POST", f"/api/workers/{first.json()['id']}/start", json={}))
    path, said = f"/api/supervisor/workers/{first.json()['id']}/pause", WHY | {"request_id": "req_abc123"}
    paused = done(ann_calls("POST", path, json=said))
    done(ann_calls("POST", f"/api/supervisor/workers/{first.json()['id']}/terminate", json=WHY))
    assert done(ann_calls("POST", path, json=said)) == paused, "also once it has moved on"
    reused = ann_calls("POST", path, json=said | {"reason": "another"})
    assert (reused.status_code, reused.json()["type"]) == (422, "urn:interlock:problem:key-reused")
    assert [each["trigger"] for each in client.history(first.json()["id"])] == ["start_task", "pause", "terminate"]


def test_an_illegal_move_of_a_worker_is_409_with_state_and_legal_triggers(ann_calls: Calls) -> None:
    refused = ann_calls("POST", f"/api/supervisor/workers/{worker(ann_calls)['id']}/pause", json=WHY)
    problem = refused.json()
    assert (refused.status_code, problem["type"]) == (409, "urn:interlock:problem:illegal-move")
    assert (problem["state"], problem["legal"]) == ("IDLE", ["start_task", "terminate"])
    unexplained = ann_calls("POST", f"/api/supervisor/workers/{worker(ann_calls)['id']}/pause", json={})
    assert unexplained.status_code == 422


def test_a_job_takes_its_workers_along_and_says_by_which_token(ann_calls: Calls, client: Client) -> None:
    own, job = running_job(ann_calls)
    shown = done(ann_calls("GET", f"/api/jobs/{job['id']}"))
    assert (shown["status"], [each["status"] for each in shown["workers"]]) == ("RUNNING", ["RUNNING"])
    for path in ("/api/jobs?status=RUNNING", f"/api/jobs/{job['entity_id']}/tree"):
        assert [each["id"] for each in done(ann_calls("GET", path))["items"]] == [job["id"]]
    ended = done(ann_calls("POST", f"/api/jobs/{job['id']}/succeed", json={"result": {"tests": 12}}))
    assert (ended["status"], ended["from_state"]) == ("COMPLETED", "RUNNING")
    event = newest(client, job)
    assert (event["authority"], event["metadata"]["result"]) == ("machinery", {"tests": 12})
    assert event["proof"].startswith("state:")
    assert " token:" in event["proof"]
    assert done(ann_calls("GET", f"/api/workers/{own['id']}"))["status"] == "COMPLETED"
    assert client.verify(job["id"]) == client.verify(own["id"]) == ()


def test_a_job_without_workers_waits_and_a_child_is_canceled_with_it(ann_calls: Calls) -> None:
    job = done(ann_calls("POST", "/api/jobs", json={"description": "build", "request_id": "j-1"}), 201)
    again = ann_calls("POST", "/api/jobs", json={"description": "build", "request_id": "j-1"})
    assert (again.status_code, again.json()["id"]) == (200, job["id"])
    child = done(ann_calls("POST", "/api/jobs", json={"description": "part", "parent": job["entity_id"]}), 201)
    done(ann_calls("POST", f"/api/jobs/{job['id']}/validate", json={}))
    waits = done(ann_calls("POST", f"/api/jobs/{job['id']}/allocate", json={}))
    assert (waits["status"], waits["seq"]) == ("PENDING", None)
    assert waits["message"].startswith("too few idle workers")
    assert done(ann_calls("POST", f"/api/supervisor/jobs/{job['id']}/cancel", json=WHY))["status"] == "CANCELED"
    assert done(ann_calls("GET", f"/api/jobs/{child['id']}"))["status"] == "CANCELED"


def test_a_worker_speaks_for_itself_and_its_job_by_its_secret_alone(ann_calls: Calls, client: Client) -> None:
    own, job = running_job(ann_calls)
    other = worker(ann_calls)
    bot = token(client.runtime, "bot")

    def said(path: str, secret: str) -> Response:
        return ann_calls("POST", path, token=bot, json={"secret": secret})

    assert said(f"/api/workers/{own['id']}/heartbeat", own["secret"]).status_code == 200
    for path in (f"/api/jobs/{job['id']}/succeed", f"/api/workers/{own['id']}/fail"):
        assert said(path, "").status_code == 403
        assert said(path, other["secret"]).status_code == 403
    assert done(said(f"/api/jobs/{job['id']}/succeed", own["secret"]))["status"] == "COMPLETED"
    event = newest(client, job)
    assert (event["triggered_by"], event["authority"]) == ("bot", "holder")
    assert event["proof"].startswith("itself token:")
    assert client.verify(job["id"]) == ()
    gone = said(f"/api/workers/{own['id']}/heartbeat", own["secret"])
    assert (gone.status_code, gone.json()["state"]) == (409, "COMPLETED")


@pytest.mark.parametrize(("name", "role"), [("bot", "agent"), ("ann", "agent")])
def test_postgresql_lets_no_agents_token_fire_what_is_its_supervisors(
    ann_calls: Calls, client: Client, name: str, role: Any
) -> None:
    job = done(ann_calls("POST", "/api/jobs", json={"description": "build"}), 201)
    principal = find(client.runtime, token(client.runtime, "bot", role))
    assert principal is not None
    client_of_bot = acting(client, principal)
    with pytest.raises(NotYours, match="no supervisor" if name == "bot" else "is of bot"):
        fire_by_right(client_of_bot, Firing(job["entity_id"], "validate", name), as_found(0))


def test_a_revoked_token_supervises_nothing_that_it_created(ann_calls: Calls, client: Client) -> None:
    job = done(ann_calls("POST", "/api/jobs", json={"description": "build"}), 201)
    principal = find(client.runtime, ann_calls.token)
    assert principal is not None
    revoke_tokens(client.runtime, "ann", OverrideOrder("ann", "a test"))
    with pytest.raises(NotYours, match="is revoked"):
        fire_by_right(acting(client, principal), Firing(job["entity_id"], "validate", "ann"), as_found(0))
    assert ann_calls("POST", f"/api/jobs/{job['id']}/validate", json={}).status_code == 401


def test_a_crashed_worker_is_replaced_and_its_secret_told_once(ann_calls: Calls) -> None:
    own, job = running_job(ann_calls)
    fault = {"kind": "worker_crash", "worker": own["entity_id"], "reason": "its host is gone", "request_id": "r-1"}
    path = f"/api/supervisor/jobs/{job['id']}/recover"
    recovered = done(ann_calls("POST", path, json=fault))
    assert (recovered["action"], recovered["replacement"]["status"], len(recovered["secret"])) == (
        "respawn",
        "RUNNING",
        43,
    )
    again = done(ann_calls("POST", path, json=fault))
    assert (again["replacement"]["id"], again["secret"]) == (recovered["replacement"]["id"], None)
    assert done(ann_calls("GET", f"/api/workers/{own['id']}"))["status"] == "FAILED"
    retried = done(
        ann_calls(
            "POST",
            f"/api/supervisor/workers/{recovered['replacement']['id']}/recover",
            json={"kind": "transient_network", "reason": "its proxy restarts"},
        )
    )
    assert (retried["action"], retried["attempt"], retried["worker"]["status"]) == ("retry", 1, "RUNNING")


def test_pages_follow_each_other_without_gap_or_repetition(ann_calls: Calls) -> None:
    made = [worker(ann_calls)["id"] for _ in range(5)]
    seen, before = [], ""
    while True:
        found = done(ann_calls("GET", f"/api/workers?limit=2{before}"))
        seen += [each["id"] for each in found["items"]]
        if found["next"] is None:
            break
        before = f"&before={found['next']}"
    assert seen == made[::-1]


def test_a_job_names_no_parent_of_a_project_that_the_token_does_not_cover(ann_calls: Calls, client: Client) -> None:
    other = f"other-{uuid4().hex[:8]}"
    wide = token(client.runtime, "ann", "operator", None)
    told = {"description": "x", "project": other}
    theirs = done(ann_calls("POST", "/api/jobs", token=wide, json=told), 201)
    for ref in (theirs["id"], theirs["entity_id"]):
        refused = ann_calls("POST", "/api/jobs", json={"description": "x", "parent": ref})
        assert refused.status_code == 404
        assert other not in refused.text


def test_what_a_brake_holds_is_202(ann_calls: Calls, client: Client) -> None:
    made = worker(ann_calls)
    done(ann_calls("POST", f"/api/workers/{made['id']}/start", json={}))
    order = OverrideOrder("ann", "it runs away")
    brake = put_brake(client.runtime, "instance", made["id"], order)["entity_id"]
    bot = token(client.runtime, "bot")
    held = ann_calls("POST", f"/api/supervisor/workers/{made['id']}/pause", json=WHY, token=bot)
    assert (held.status_code, held.json()["status"]) == (202, "waiting"), held.text
    release_brake(client.runtime, brake, order)
    drain_all(client.runtime)
    assert done(ann_calls("GET", f"/api/workers/{made['id']}"))["status"] == "PAUSED"
