"""What the routes do: the same acceptance as the client's, in the name of the token."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from httpx import Response

from interlock.api import holding
from interlock.workers.client.client import Client
from tests.calling import Calls, bearing, token
from tests.driving import drain_all

pytestmark = pytest.mark.integration
SOON = {"wait": 0}


def story(call: Calls, name: str = "S-1") -> str:
    made = call("POST", "/api/instances", json={"type": "story", "entity_id": name})
    assert made.status_code == 201, made.text
    return str(made.json()["id"])


def fired(call: Calls, trigger: str, **more: object) -> str:
    """Fire on the story S-1 what is accepted; returns the request_id."""
    answer = call("POST", "/api/triggers", params=SOON, json={"instance": "S-1", "trigger": trigger, **more})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["request_id"])


def test_a_story_is_created_moved_and_read_in_the_tokens_name(call: Calls, client: Client) -> None:
    id_ = story(call)
    again = call("POST", "/api/instances", json={"type": "story", "entity_id": "S-1"})
    assert (again.status_code, again.json()["id"]) == (200, id_)
    other = call("POST", "/api/instances", json={"type": "story", "entity_id": "S-1", "context": {"x": 1}})
    assert (other.status_code, other.json()["type"]) == (409, "urn:interlock:problem:already-exists")
    request = fired(call, "design_complete", data={"note": "ready"})
    drain_all(client.runtime)
    assert call("GET", f"/api/requests/{request}").json()["result"]["to"] == "design"
    shown = call("GET", "/api/instances/story/S-1").json()
    assert (shown["current_state"], shown["created_by"], shown["verified"]) == ("design", "agent-7", True)
    assert "start_coding" in shown["legal"]
    (event,) = call("GET", f"/api/history/{id_}").json()["items"]
    assert (event["triggered_by"], event["metadata"]["note"]) == ("agent-7", "ready")
    assert event["proof"].startswith("token:")
    assert UUID(event["proof"].removeprefix("token:"))


def test_an_illegal_move_is_a_409_with_state_and_legal_triggers(call: Calls, client: Client) -> None:
    story(call)
    request = fired(call, "tests_pass", request_id="too early")
    drain_all(client.runtime)
    body = {"instance": "S-1", "trigger": "tests_pass", "request_id": request}
    refused = call("POST", "/api/triggers", params=SOON, json=body)
    assert refused.status_code == 409
    assert refused.headers["content-type"] == "application/problem+json"
    problem = refused.json()
    assert (problem["type"], problem["state"]) == ("urn:interlock:problem:illegal-move", "analysis")
    assert "design_complete" in problem["legal"]
    assert problem["request_id"] == request


def test_what_a_refused_trigger_lacks_is_named(call: Calls, client: Client) -> None:
    story(call)
    for trigger in ("design_complete", "start_coding", "submit_pr", "approve"):
        request = fired(call, trigger)
        drain_all(client.runtime)
    refused = call("POST", "/api/triggers", json={"instance": "S-1", "trigger": "approve", "request_id": request})
    assert refused.status_code == 409
    assert refused.json()["missing"] == ["pull_request_merged"]


def test_it_waits_without_a_thread_until_the_trigger_is_applied(call: Calls, client: Client) -> None:
    story(call)

    async def both() -> tuple[int, str]:
        body = {"instance": "S-1", "trigger": "design_complete"}
        sent = call.client.post("/api/triggers", params={"wait": 30}, json=body, headers=bearing(call.token))
        answer = asyncio.create_task(sent)
        while not answer.done():
            await asyncio.to_thread(drain_all, client.runtime)
        return answer.result().status_code, answer.result().json()["status"]

    assert call.loop.run(both()) == (200, "applied")


async def come(call: Calls, request: str, waiting: Sequence["asyncio.Task[Response]"]) -> None:
    """Return once all of these wait, or one of them has been answered: the test will say with what."""
    while len(call.app.state.access.waiting._waiters.get(request, ())) < len(waiting):
        if any(each.done() for each in waiting):
            return
        await asyncio.to_thread(lambda: None)  # lets the others come


def test_many_waiters_share_one_query(call: Calls, client: Client) -> None:
    story(call)
    request = fired(call, "design_complete")

    async def wait() -> list[int]:
        path, headers = f"/api/requests/{request}?wait=30", bearing(call.token)
        waiting = [asyncio.create_task(call.client.get(path, headers=headers)) for _ in range(50)]
        await come(call, request, waiting)
        await asyncio.to_thread(drain_all, client.runtime)
        return [(await each).status_code for each in waiting]

    assert call.loop.run(wait()) == [200] * 50
    assert not call.app.state.access.waiting._waiters


def test_no_token_alone_waits_on_all_connections(call: Calls, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    story(call)
    request = fired(call, "design_complete")
    monkeypatch.setattr(holding, "MOST_OF_A_TOKEN", 2)
    own, other = bearing(call.token), bearing(token(client.runtime, "bot"))

    async def wait() -> tuple[list[Response], Response, Response, list[Response]]:
        path = f"/api/requests/{request}?wait=30"
        waiting = [asyncio.create_task(call.client.get(path, headers=own)) for _ in range(2)]
        await come(call, request, waiting)
        refused = [await call.client.get(each, headers=own) for each in (path, f"/api/requests?id={request}&wait=30")]
        body = {"instance": "S-1", "trigger": "start_coding"}
        accepted = await call.client.post("/api/triggers?wait=30", json=body, headers=own)
        others = asyncio.create_task(call.client.get(path, headers=other))
        await asyncio.to_thread(drain_all, client.runtime)
        return refused, accepted, await others, [await each for each in waiting]

    refused, accepted, others, waited = call.loop.run(wait())
    assert [(each.status_code, each.headers["retry-after"]) for each in refused] == [(429, "5")] * 2
    assert accepted.status_code == 202  # it is accepted, and answered without a wait
    assert [each.json()["status"] for each in (others, *waited)] == ["applied"] * 3
    assert call("GET", f"/api/requests/{request}?wait=30").json()["status"] == "applied"


def test_a_key_fires_once_and_with_another_body_it_is_a_422(call: Calls) -> None:
    story(call)
    body = {"instance": "S-1", "trigger": "design_complete"}

    def sent(key: str, **more: str) -> tuple[int, object]:
        answer = call("POST", "/api/triggers", params=SOON, json=body | more, headers={"Idempotency-Key": key})
        return answer.status_code, answer.json().get("replayed", answer.json().get("type", ""))

    assert sent('"once"') == (202, False)
    assert sent("once") == (202, True)
    assert sent("once", request_id="once") == (202, True)
    assert sent("once", request_id="twice") == (422, "urn:interlock:problem:invalid")
    assert sent("once", trigger="block") == (422, "urn:interlock:problem:key-reused")


def test_an_expected_version_that_has_passed_is_a_409(call: Calls, client: Client) -> None:
    story(call)
    body = {"instance": "S-1", "trigger": "design_complete", "if_version": 7, "request_id": "stale"}
    assert call("POST", "/api/triggers", params=SOON, json=body).status_code == 202
    drain_all(client.runtime)
    refused = call("POST", "/api/triggers", params=SOON, json=body)
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:interlock:problem:version-conflict")
    assert refused.json()["version"] == 0


def test_many_triggers_are_accepted_together_or_not_at_all(call: Calls, client: Client) -> None:
    id_ = story(call)
    many = [
        {"instance": ref, "trigger": trigger} for ref, trigger in (("S-1", "design_complete"), (id_, "start_coding"))
    ]
    bad = call("POST", "/api/triggers/batch", json={"triggers": [*many, {"instance": "S-2", "trigger": "block"}]})
    assert bad.status_code == 404
    accepted = call("POST", "/api/triggers/batch", json={"triggers": many})
    assert accepted.status_code == 202
    drain_all(client.runtime)
    ids = [each["request_id"] for each in accepted.json()["items"]]
    found = call("GET", "/api/requests", params={"id": ids, "wait": 1}).json()["items"]
    assert [each["result"]["to"] for each in found] == ["design", "implementation"]


def test_lists_are_keyset_pages(call: Calls) -> None:
    names = [f"S-{number}" for number in range(5)]
    for name in names:
        story(call, name)
    seen, before = [], None
    while True:
        page = call(
            "GET", "/api/instances", params={"limit": 2, "type": "story"} | ({"before": before} if before else {})
        )
        seen += [each["entity_id"] for each in page.json()["items"]]
        if (before := page.json()["next"]) is None:
            break
    assert seen == names[::-1]
    assert [each["entity_id"] for each in call("GET", "/api/instances?name=S-3").json()["items"]] == ["S-3"]
    assert call("GET", "/api/instances?state=done").json()["items"] == []


def test_an_approval_is_shown_to_who_may_decide_and_decided(call: Calls, client: Client) -> None:
    review = client.create("pr_review", "PR-1", context={"author": "bob"})
    for trigger in ("start_review", "approve", "merge"):
        client.fire(review["id"], trigger, by="agent-8")
        drain_all(client.runtime)
    (held,) = call("GET", "/api/approvals").json()["items"]
    assert (held["subject"], held["trigger"], held["author"]) == ("pr_review/PR-1", "merge", "bob")
    bob = token(client.runtime, "bob")
    assert call("GET", "/api/approvals", token=bob).json()["items"] == []
    assert len(call("GET", "/api/approvals?mine=false", token=bob).json()["items"]) == 1
    assert call("POST", f"/api/approvals/{review['id']}/decision", json={"decision": "approve"}).status_code == 404
    client.fire(client.create("story", "S-9", project="other")["id"], "block", by="eve", request_id="eves")
    reused = call("POST", f"/api/approvals/{held['id']}/decision", json={"decision": "approve", "request_id": "eves"})
    assert (reused.status_code, "eve " in reused.json()["detail"]) == (422, False), "nothing is said of others"
    decided = call("POST", f"/api/approvals/{held['id']}/decision", params=SOON, json={"decision": "approve"})
    assert decided.status_code == 202
    drain_all(client.runtime)
    assert client.show(review["id"])["current_state"] == "merged"
    assert call("GET", "/api/approvals").json()["items"] == []


def test_schedules_are_created_shown_and_paused(call: Calls, client: Client) -> None:
    story(call)
    terms = {"name": "nightly", "times": {"cron": "30 2 * * *"}, "fire": {"instance": "S-1", "trigger": "block"}}
    made = call("POST", "/api/schedules", json=terms)
    assert made.status_code == 201, made.text
    assert (made.json()["by"], made.json()["state"], len(made.json()["following"])) == ("agent-7", "active", 5)
    assert [each["name"] for each in call("GET", "/api/schedules").json()["items"]] == ["nightly"]
    body = {"instance": "schedule/nightly", "trigger": "pause", "data": {"reason": "moving"}}
    assert call("POST", "/api/triggers", params=SOON, json=body).status_code == 202
    drain_all(client.runtime)
    assert call("GET", "/api/schedules/nightly").json()["state"] == "paused"
    assert call("POST", "/api/schedules", json=terms | {"create": {"type": "story", "name": "x"}}).status_code == 422


def test_definitions_are_read(call: Calls) -> None:
    known = {(each["type"], each["version"]) for each in call("GET", "/api/definitions").json()["items"]}
    assert ("workstream", "0.1.0") in known
    shown = call("GET", "/api/definitions/workstream?version=0.1.0").json()
    assert shown["version"] == "0.1.0"
    assert shown["transitions"][0]["by"]
    assert call("GET", "/api/definitions/nothing").status_code == 404


def test_a_trigger_may_be_for_later(call: Calls, client: Client) -> None:
    story(call)
    later = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    request = fired(call, "design_complete", not_before=later)
    assert call("GET", f"/api/requests/{request}").json()["status"] == "scheduled"
    assert call("GET", f"/api/requests/{uuid4()}").status_code == 404


@pytest.mark.parametrize(
    ("said", "detail"),
    [
        ({"instance": "S-1", "trigger": "fly"}, "has no trigger"),
        ({"instance": "S-1", "trigger": "block", "by": "ann"}, "by"),
        ({"instance": "S-1", "trigger": "block", "data": {"note": "a\0b"}}, "NUL"),
        ({"instance": "S\0", "trigger": "block"}, "U+0000"),
        ({"instance": "S-1", "trigger": "block", "proof": "machinery"}, "proof must be"),
        ({"instance": "S-1", "trigger": "block", "request_id": "interlock:x"}, "interlock:"),
        ({"instance": "S-1", "trigger": "block", "if_version": "1"}, "if_version"),
        ({"instance": "S-1", "trigger": "block", "not_before": "9999-12-31T00:00:00Z"}, "the year 9998"),
    ],
    ids=str,
)
def test_a_wrong_value_is_a_422_that_says_which(call: Calls, said: dict[str, object], detail: str) -> None:
    story(call)
    refused = call("POST", "/api/triggers", params=SOON, json=said)
    assert (refused.status_code, refused.headers["content-type"]) == (422, "application/problem+json")
    assert detail in refused.json()["detail"]


def test_no_reason_names_an_instance_of_another_project(call: Calls, client: Client) -> None:
    id_ = story(call)
    client.create("pr_review", "PR-secret", project="other", context={"author": "bob", "story_id": id_})
    for trigger in ("design_complete", "start_coding", "submit_pr"):
        fired(call, trigger)
        drain_all(client.runtime)
    shown = call("GET", f"/api/instances/{id_}").json()
    assert "an instance of another project (submitted)" in shown["missing"]["approve"]
    stuck = call("GET", "/api/stuck?all=true").json()["items"]
    assert [each["reason"] for each in stuck if each["workflow_id"] == id_]
    request = fired(call, "approve")
    drain_all(client.runtime)
    body = {"instance": "S-1", "trigger": "approve", "request_id": request}
    refused = call("POST", "/api/triggers", json=body)
    assert (refused.status_code, "an instance of another project" in refused.json()["detail"]) == (409, True)
    again = call("GET", "/api/stuck?all=true").json()["items"]
    for each in (shown, stuck, again, refused.json(), call("GET", f"/api/requests/{request}").json()):
        assert "PR-secret" not in str(each)
    everywhere = token(client.runtime, "cyd", "read-only", None)
    reasons = call("GET", "/api/stuck?all=true", token=everywhere).json()["items"]
    assert "PR-secret" in str(reasons)


def test_links_to_what_is_in_another_project_are_not_shown(call: Calls, client: Client) -> None:
    story(call)
    seen = client.show("story/S-1")["id"]
    for project in ("default", "other"):
        client.create("pr_review", f"PR-{project}", project=project, context={"author": "bob", "story_id": str(seen)})
    assert len(client.show(seen)["links"]) == 2
    assert [each["entity_id"] for each in call("GET", "/api/instances/S-1").json()["links"]] == ["PR-default"]
