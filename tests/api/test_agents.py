"""Agents over HTTP: the token alone makes a caller its worker, whose claims and reports PostgreSQL judges."""

import asyncio
import threading
from typing import Any
from uuid import UUID, uuid4

import pytest
from httpx import Response

from interlock.api.queued import Queued
from interlock.db.connection import transaction
from interlock.workers.client.client import Client
from interlock.workers.engine.worker_secrets import digest_of
from interlock.workers.overrides.budgets import Budgeted, set_budget
from interlock.workers.overrides.tokens import revoke_tokens
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.pool import attempts
from interlock.workers.pool.agent import Agent
from interlock.workers.pool.output_files import path_of
from interlock.workers.pool.output_reading import OutputReading
from interlock.workers.pool.token_agents import secret_of
from interlock.workflows.errors import NotYours
from tests.calling import Calls, bearing, token
from tests.crewing import Site
from tests.driving import drain_all, state

pytestmark = pytest.mark.integration
GIVEN = {"kind": "agent", "agent": {"prompt": "write a test"}}


@pytest.fixture
def site(client: Client) -> Site:
    """The runs and tasks of the project `default`."""
    return Site(client, "default")


def claimed(call: Calls, **more: object) -> dict[str, object]:
    answer = call("POST", "/api/agent/claims", **more)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def workers(call: Calls) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = call("GET", "/api/instances", params={"type": "uet_worker"}).json()["items"]
    return found


def finish(call: Calls, token: object, **said: object) -> Response:
    return call("POST", "/api/agent/finish", json={"token": token, **said})


def test_an_agent_claims_and_reports_with_nothing_but_its_token(call: Calls, client: Client, site: Site) -> None:
    (task,) = site.queue(1, **GIVEN, required_capabilities=["python"])
    registered = call("PUT", "/api/agent", json={"capabilities": ["python"]})
    assert (registered.status_code, registered.json()["name"]) == (201, "agent-7")
    assert call("PUT", "/api/agent", json={}).status_code == 200
    claim = claimed(call)
    assert (claim["task_id"], claim["context"]["agent"]) == (str(task), GIVEN["agent"])  # type: ignore[index]
    assert call("GET", "/api/agent/claims").json()["items"] == [claim]
    drain_all(client.runtime)
    beat = call("POST", "/api/agent/heartbeat", params={"token": [claim["token"], 7]})
    assert beat.json() == {"state": "BUSY", "holds": [claim["token"]]}
    assert call("POST", "/api/agent/claims").status_code == 204, "it is full"
    ended = finish(call, claim["token"], output={"summary": "written"}, result={"tests": 3})
    assert ended.json() == {"trigger": "execution_completed"}
    drain_all(client.runtime)
    event = next(each for each in client.history(task) if each["trigger"] == "execution_completed")
    assert (event["triggered_by"], event["metadata"]["summary"], event["authority"]) == ("agent-7", "written", "holder")
    (worker,) = workers(call)
    assert (worker["created_by"], worker["project"]) == ("agent-7", "default")
    assert client.history(UUID(worker["id"]))[0]["proof"].startswith("itself token:")
    assert call("DELETE", "/api/agent").json() == {"tasks_left": 0}
    drain_all(client.runtime)
    again = call("PUT", "/api/agent", json={})
    assert again.status_code == 201
    assert {each["entity_id"] for each in workers(call)} == {"agent-7", "agent-7#2"}


def test_a_stale_report_is_refused_and_the_claim_of_another_is_not_spoken_for(
    call: Calls, client: Client, site: Site
) -> None:
    site.queue(1, **GIVEN)
    call("PUT", "/api/agent", json={})
    claim = claimed(call)
    other = token(client.runtime, "agent-8")
    assert call("PUT", "/api/agent", json={}, token=other).status_code == 201
    stolen = call("POST", "/api/agent/finish", json={"token": claim["token"]}, token=other)
    assert (stolen.status_code, stolen.json()["type"]) == (409, "urn:interlock:problem:stale-claim")
    assert "GET /api/agent/claims" in stolen.json()["detail"]
    call("DELETE", "/api/agent")  # gives the task back
    drain_all(client.runtime)
    late = finish(call, claim["token"])
    assert (late.status_code, late.json()["type"]) == (409, "urn:interlock:problem:ended")


def test_what_an_agent_says_it_spent_is_kept_and_counted(call: Calls, client: Client, site: Site) -> None:
    budget = Budgeted("actor", "agent-7", "default")
    set_budget(client.runtime, budget, "tokens", OverrideOrder("ann", "a test"), most=1_000)
    first, second = site.queue(2, **GIVEN)
    call("PUT", "/api/agent", json={})
    claim = claimed(call)
    assert finish(call, claim["token"], spent={"tokens": 1.5}).status_code == 422
    assert finish(call, claim["token"], spent={"tokens": 1_200, "usd": 0.4}).status_code == 200
    drain_all(client.runtime)
    events = client.history(UUID(str(claim["task_id"])))
    (told,) = [each["metadata"]["spent"] for each in events if "spent" in each["metadata"]]
    assert told == {"tokens": 1_200, "usd": 0.4}
    none = call("POST", "/api/agent/claims")
    assert (none.status_code, none.content) == (204, b""), "its brake is on"
    assert "queued" in {state(client, each) for each in (first, second)}


def test_another_token_of_the_same_name_is_another_worker(call: Calls, client: Client) -> None:
    assert call("PUT", "/api/agent", json={}).status_code == 201
    second = token(client.runtime, "agent-7")
    taken = call("PUT", "/api/agent", json={}, token=second)
    assert (taken.status_code, taken.json()["type"]) == (409, "urn:interlock:problem:already-exists")
    assert call("POST", "/api/agent/claims", token=second).status_code == 403


def test_a_token_has_one_agent_at_a_time_however_it_is_created(call: Calls, client: Client, site: Site) -> None:
    site.queue(2, **GIVEN)

    def create(name: str, project: str = "default") -> Response:
        context = digest_of(secret_of(call.token, project)) | {"worker_type": "agent"}
        said = {"type": "uet_worker", "entity_id": name, "project": project, "context": context}
        return call("POST", "/api/instances", json=said)

    assert create("agent-7").status_code == 201
    refused = create("agent-7#2")
    assert (refused.status_code, "its agent agent-7 lives" in refused.json()["detail"]) == (403, True), refused.text
    assert create("agent-7").status_code == 200, "the same again is the same worker"
    assert create("agent-7#2", "elsewhere").status_code == 403
    assert call("PUT", "/api/agent", json={}).status_code == 201, "it had not begun"
    claimed(call)
    assert create("agent-7#2").status_code == 403
    assert call("POST", "/api/agent/claims").status_code == 204, "it is full"
    call("DELETE", "/api/agent")
    drain_all(client.runtime)
    assert create("agent-7#2").status_code == 201


def test_no_token_takes_a_task_that_is_for_another_by_calling_itself_its_type(
    call: Calls, client: Client, site: Site
) -> None:
    (task,) = site.queue(1, **GIVEN, affinity=["agent-8"])
    context = digest_of(secret_of(call.token, "default"))
    said = {"type": "uet_worker", "entity_id": "agent-7", "context": context | {"worker_type": "agent-8"}}
    refused = call("POST", "/api/instances", json=said)
    assert (refused.status_code, "of the type agent" in refused.json()["detail"]) == (403, True), refused.text
    call("PUT", "/api/agent", json={})
    assert call("POST", "/api/agent/claims").status_code == 204
    other = token(client.runtime, "agent-8")
    call("PUT", "/api/agent", json={}, token=other)
    assert call("POST", "/api/agent/claims", token=other).json()["task_id"] == str(task)


def test_whoever_waits_for_a_task_gets_it_when_it_is_queued(call: Calls, client: Client, site: Site) -> None:
    call("PUT", "/api/agent", json={})

    async def both() -> tuple[Response, list[UUID]]:
        asking = call.client.request("POST", "/api/agent/claims", params={"wait": 20}, headers=bearing(call.token))
        answer, made = await asyncio.gather(asking, asyncio.to_thread(site.queue, 1, **GIVEN))
        return answer, made

    answer, (task,) = call.loop.run(both())
    assert answer.json()["task_id"] == str(task)
    assert state(client, task) == "running"


@pytest.fixture
def waits(call: Calls, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once somebody has asked for a task in vain, and waits for one."""
    waits, queued = threading.Event(), call.app.state.access.queued

    async def changed(seen: set[UUID], seconds: float) -> set[UUID]:
        if seconds:
            waits.set()
        return await Queued.changed(queued, seen, seconds)

    monkeypatch.setattr(queued, "changed", changed)
    return waits


def test_a_token_that_is_revoked_while_it_waits_for_a_task_gets_none(
    call: Calls, client: Client, site: Site, waits: threading.Event
) -> None:
    call("PUT", "/api/agent", json={})
    (worker,) = workers(call)

    def revoke() -> UUID:
        assert waits.wait(20)
        revoke_tokens(client.runtime, "agent-7", OverrideOrder("ann", "stolen"))
        return site.queue(1, **GIVEN)[0]

    async def both() -> tuple[Response, UUID]:
        asking = call.client.request("POST", "/api/agent/claims", params={"wait": 20}, headers=bearing(call.token))
        answer, made = await asyncio.gather(asking, asyncio.to_thread(revoke))
        return answer, made

    answer, task = call.loop.run(both())
    assert (answer.status_code, "detail" in answer.json()) == (401, False)
    assert state(client, task) == "queued"
    agent = Agent.called(str(worker["id"]), secret=secret_of(call.token, "default"), runtime=client.runtime)
    with pytest.raises(NotYours, match="is revoked"):
        agent.claim()
    assert state(client, task) == "queued"


def test_whoever_is_gone_while_it_waits_for_a_task_gets_none(
    call: Calls, client: Client, site: Site, waits: threading.Event
) -> None:
    call("PUT", "/api/agent", json={})
    gone, sent = asyncio.Event(), []
    head = {"type": "http", "method": "POST", "path": "/api/agent/claims", "query_string": b"wait=20"}
    head["server"] = ("127.0.0.1", 8080)
    headers = [(b"host", b"127.0.0.1"), (b"authorization", bearing(call.token)["Authorization"].encode())]

    async def receive() -> dict[str, Any]:
        if not gone.is_set():
            gone.set()
            return {"type": "http.request", "body": b"", "more_body": False}
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    def queue() -> UUID:
        assert waits.wait(20)
        return site.queue(1, **GIVEN)[0]

    async def both() -> UUID:
        asking = call.app({**head, "headers": headers}, receive, send)
        _, task = await asyncio.gather(asking, asyncio.to_thread(queue))
        return task

    assert state(client, call.loop.run(both())) == "queued"
    assert sent[0]["status"] == 204


def test_what_it_says_while_it_works_is_followed_live_and_sealed_by_its_report(
    call: Calls, client: Client, site: Site
) -> None:
    (task,) = site.queue(1, **GIVEN)
    call("PUT", "/api/agent", json={})
    claim = claimed(call)

    def say(text: str) -> Response:
        return call("POST", "/api/agent/log", json={"token": claim["token"], "text": text})

    assert say("reads\n").json() == {"kept": True}
    with transaction(client.runtime.database) as connection:
        (attempt,) = attempts.of_task(connection, task)
    run, settings = UUID(str(claim["run_id"])), client.runtime.settings
    reading = OutputReading(settings, run_id=run, task_id=task, kind="agent", attempt=attempt)
    assert reading.more() == "reads\n"
    assert say("writes\n").json() == {"kept": True}
    finish(call, claim["token"], output={"stdout": "wrote 3 tests"})
    drain_all(client.runtime)
    assert say("late").status_code == 409
    with transaction(client.runtime.database) as connection:
        (attempt,) = attempts.of_task(connection, task)
    assert reading.rest(attempt) == "writes\nwrote 3 tests\n"
    assert reading.verdict().verified is True
    path = path_of(settings, run, task, attempt.claim)
    path.chmod(0o600)
    path.write_text("reads\nlies\n")
    again = OutputReading(settings, run_id=run, task_id=task, kind="agent", attempt=attempt)
    again.rest(attempt)
    assert again.verdict().verified is False


@pytest.mark.parametrize("name", ["operator", "override", "approval", "terms", "votes", "relinked"])
def test_a_report_with_a_name_of_interlocks_own_is_refused_and_says_which(
    call: Calls, client: Client, site: Site, name: str
) -> None:
    site.queue(1, **GIVEN)
    call("PUT", "/api/agent", json={})
    claim = claimed(call)
    refused = finish(call, claim["token"], output={name: "ann"})
    assert (refused.status_code, f"output.{name} is" in refused.json()["detail"]) == (422, True), refused.text
    assert finish(call, claim["token"], output={"summary": "written"}).status_code == 200


@pytest.mark.parametrize("directly", [False, True])
@pytest.mark.parametrize(
    "said",
    [
        {"output": {"sha256": "x"}},
        {"output": {"sha256": "x", "bytes": "many"}},
        {"output": {"sha256": "x", "bytes": 1, "left_out_bytes": [], "fault": 7}},
        {"error": {"a": 1}, "reason": ["b"], "stdout": 5, "stderr": {}},
    ],
)
def test_no_report_of_an_agent_keeps_others_from_reading_its_log(
    call: Calls, client: Client, site: Site, said: dict[str, Any], directly: bool
) -> None:
    site.queue(1, **GIVEN, name="w/n")
    call("PUT", "/api/agent", json={})
    claim = claimed(call)
    if directly:  # the claim's holder may fire the trigger itself, with data of any shape
        data = {"exit_code": 0, "log_file": said.get("output", 5), **said}
        fire = {"instance": claim["task_id"], "trigger": "execution_completed", "proof": f"claim:{claim['token']}"}
        assert call("POST", "/api/triggers", params={"wait": 0}, json=fire | {"data": data}).status_code == 202
    else:
        assert finish(call, claim["token"], output=said).status_code == 200
    drain_all(client.runtime)
    answer = call("GET", f"/api/runs/{claim['run_id']}/logs", params={"task": "w/n"})
    assert (answer.status_code, answer.json()["trigger"]) == (200, "execution_completed"), answer.text
    assert answer.json()["error"] is None


def test_it_takes_tasks_of_its_tokens_project_only(call: Calls, client: Client) -> None:
    (theirs,) = Site(client, f"other-{uuid4()}"[:20]).queue(1, **GIVEN)
    call("PUT", "/api/agent", json={})
    assert call("POST", "/api/agent/claims").status_code == 204
    assert state(client, theirs) == "queued"


def test_who_has_not_registered_is_told_to(call: Calls) -> None:
    refused = call("POST", "/api/agent/claims")
    assert (refused.status_code, refused.json()["detail"]) == (
        404,
        "'agent-7' is no agent in project 'default' yet: register first.",
    )
