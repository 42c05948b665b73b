"""Operators over HTTP: what the commands show and do, with the token in the proof, within the token's projects."""

import asyncio
import base64
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest

from interlock.api.access import REPORTS
from interlock.api.cures import as_request
from interlock.api.routes import audit
from interlock.api.routes.triggers import TriggerOrderIn
from interlock.db.connection import transaction
from interlock.db.core import requests
from interlock.workers.access import tokens
from interlock.workers.circuit_breakers import calling
from interlock.workers.client.client import Client
from interlock.workers.overrides import brakes, budgets, limits, subscriptions
from interlock.workers.overrides.budgets import Budgeted
from interlock.workers.overrides.limits import LimitedName
from interlock.workers.overrides.subscriptions import WantedEvents
from interlock.workers.overrides.tokens import TokenTerms, issue
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workflows.output.suggestions import offered
from tests.calling import Calls, bearing, token
from tests.driving import applied, drain_all, state
from tests.landscape import ONE_LINE, Landscape
from tests.repositories import FILES
from tests.stuck import age

pytestmark = pytest.mark.integration
Dba = "psycopg.Connection[Any]"
WHY = {"reason": "a test"}
ANN = OverrideOrder("ann", "a test")
DAYS = 3 * 86_400.0
BECAUSE = {"reason": "WHY"}
ID = "01977777-7777-7777-8777-777777777777"


@pytest.fixture
def land(client: Client, dba: Dba, tmp_path: Path) -> Landscape:
    return Landscape(client.runtime, dba, tmp_path)


@pytest.fixture
def operator(client: Client, ann: None) -> str:
    """An operator's token for the project `default`."""
    return token(client.runtime, "ann", "operator")


def id_of(client: Client, presented: str) -> UUID:
    """The id of a token."""
    found = tokens.find(client.runtime, presented)
    assert found
    return found.token_id


def set_aside(client: Client, name: str, project: str = "default") -> str:
    """A trigger that an operator has quarantined; returns its request_id."""
    story = client.create("story", name, project=project)["id"]
    request_id = client.fire(story, "block", by="agent-7").request_id
    with transaction(client.runtime.database) as connection:
        requests.quarantine(connection, [request_id], by="ann", reason="a test")
    return request_id


def test_gates_are_shown_with_what_they_printed_and_run_again(call: Calls, land: Landscape, operator: str) -> None:
    gate = land.gate(["sh", "-c", "echo seen; echo warned >&2; exit 3"])
    land.settle()
    (listed,) = call("GET", "/api/gates?run=demo&state=FAILED").json()["items"]
    assert (listed["id"], listed["name"], listed["exit_code"]) == (str(gate), "w/g", 3)
    shown = call("GET", "/api/gates/demo/w/g").json()
    assert (shown["stdout"], shown["stderr"], shown["command"][0]) == ("seen\n", "warned\n", "sh")
    asked = call("POST", f"/api/gates/{gate}/rerun", token=operator, json=WHY | {"dry_run": True})
    assert asked.status_code == 200, asked.text
    assert asked.json()["made"]
    assert len(call("GET", "/api/gates").json()["items"]) == 1, "a dry run made none"
    again = call("POST", "/api/gates/demo/w/g/rerun", token=operator, json=WHY)
    assert again.status_code == 200, again.text
    assert len(call("GET", "/api/gates?run=demo").json()["items"]) == 2
    refused = call("POST", "/api/gates/demo/w/g/rerun", token=operator, json=WHY)
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:interlock:problem:illegal-move")
    assert "was run again before" in refused.json()["detail"]


def test_lists_of_gates_are_keyset_pages(call: Calls, land: Landscape) -> None:
    made = [str(land.gate(["true"], f"g{number}", started=False)) for number in range(5)]
    seen, before = [], None
    while True:
        page = call("GET", "/api/gates", params={"limit": 2} | ({"before": before} if before else {})).json()
        seen += [each["id"] for each in page["items"]]
        if (before := page["next"]) is None:
            break
    assert seen == made[::-1]


def test_a_patch_is_shown_with_its_diff_and_a_corrected_one_is_handed_in(
    call: Calls, land: Landscape, operator: str
) -> None:
    bad, good = land.patch("no diff", "bad"), land.committed_patch(dict(ONE_LINE), "good")
    land.settle()
    page = call("GET", "/api/patches?run=demo").json()
    assert ({each["ledger_id"] for each in page["items"]}, page["next"]) == ({str(bad), str(good)}, None)
    (quarantined,) = call("GET", "/api/patches?state=quarantined").json()["items"]
    assert quarantined["ledger_id"] == str(bad)
    shown = call("GET", "/api/patches/demo/w/good^1").json()
    assert "-one\n+1\n" in shown["diff"]
    assert shown["commit_sha"]
    wanted = WHY | {"based_on": str(bad), "diff": shown["diff"], "dry_run": True}
    assert call("POST", "/api/patches", json=wanted).status_code == 403
    answer = call("POST", "/api/patches", token=operator, json=wanted)
    assert answer.status_code == 200, answer.text
    committed = call("POST", "/api/patches", token=operator, json=wanted | {"based_on": str(good)})
    assert committed.status_code == 409
    assert call("GET", "/api/patches?state=gone").status_code == 422


def test_a_brake_says_what_it_holds_and_its_release_names_the_token(
    call: Calls, client: Client, operator: str, dba: Dba
) -> None:
    runtime = client.runtime
    brake = brakes.put_brake(runtime, "actor", "agent-7", ANN)
    budgets.set_budget(runtime, Budgeted("actor", "agent-7"), "triggers", ANN, most=100)
    story = client.create("story", "S-1")["id"]
    held = call("POST", "/api/triggers?wait=0", json={"instance": "S-1", "trigger": "block"}).json()
    assert held["status"] == "waiting"
    (listed,) = call("GET", "/api/brakes").json()["items"]
    assert (listed["entity_id"], listed["held"], listed["reason"]) == (brake["entity_id"], 1, "a test")
    shown = call("GET", f"/api/brakes/{brake['entity_id']}").json()
    assert [each["request_id"] for each in shown["requests"]] == [held["request_id"]]
    (budget,) = call("GET", "/api/budgets").json()["items"]
    assert (budget["resource"], budget["most"]) == ("triggers", 100)
    assert call("POST", f"/api/brakes/{brake['entity_id']}/release", json=WHY).status_code == 403
    released = call("POST", f"/api/brakes/{brake['entity_id']}/release", token=operator, json=WHY)
    assert (released.status_code, released.json()["current_state"]) == (200, "released")
    (proof,) = dba.execute(
        "SELECT proof FROM interlock.workflow_transitions WHERE workflow_id = %s AND trigger = 'release'",
        (brake["id"],),
    ).fetchone() or ("",)
    assert " token:" in proof
    drain_all(runtime)
    assert state(client, story) == "blocked"


def test_an_operator_has_workers_roll_a_landed_patch_back(
    call: Calls, land: Landscape, operator: str, client: Client
) -> None:
    land.gate(["test", "-f", "app.py"], "unit")
    patch = land.committed_patch(dict(ONE_LINE))
    land.validate_and_land()
    before = (land.checkout / "app.py").read_text()
    path = f"/api/patches/{patch}/roll-back"
    assert call("POST", path, json=WHY).status_code == 403
    both = {"commit_sha": "abcdef0", "plan": {"compensation_type": "skip"}}
    for wrong in ({"reason": ""}, {"commit_sha": "HEAD"}, {"plan": {"compensation_type": "undo"}}, both):
        assert call("POST", path, token=operator, json=WHY | wrong).status_code == 422, wrong
    assert call("GET", "/api/instances?type=rollback").json()["items"] == []
    ordered = call("POST", path, token=operator, json=WHY)
    assert (ordered.status_code, ordered.json()["current_state"]) == (202, "rolling_back"), ordered.text
    again = call("POST", path, token=operator, json=WHY)
    assert (again.status_code, again.json()["id"]) == (202, ordered.json()["id"]), "one at a time"
    assert (land.checkout / "app.py").read_text() == before, "nothing is done in the API"
    land.settle()
    done = call("GET", f"/api/instances/{ordered.json()['id']}").json()
    assert (done["current_state"], done["verified"]) == ("rolled_back", True)
    assert (land.checkout / "app.py").read_text() == FILES["app.py"] != before
    entry = land.entry(patch)
    assert (entry["state"], entry["rollback_reason"]) == ("rolled_back", f"a test (rollback {done['entity_id']})")
    first = client.history(UUID(done["id"]))[0]
    assert (first["triggered_by"], first["metadata"]["reason"]) == ("ann", "a test")
    assert f" token:{id_of(client, operator)}" in str(first["proof"])
    assert call("POST", path, token=operator, json=WHY).status_code == 409, "it is rolled back already"


def test_a_rollback_that_fails_changes_nothing_and_is_ordered_again(
    call: Calls, land: Landscape, operator: str
) -> None:
    patch = land.committed_patch(dict(ONE_LINE))
    land.validate_and_land()
    before = (land.checkout / "app.py").read_text()
    path, sha = f"/api/patches/{patch}/roll-back", land.entry(patch)["commit_sha"]
    revert = {"action": "git_revert", "commit_sha": sha, "branch": "main"}
    plan = {"compensation_type": "git_revert", "actions": [revert], "validation": {"required_gates": ["SECURITY"]}}

    def settled(**more: object) -> tuple[str, str]:
        ordered = call("POST", path, token=operator, json=WHY | more)
        assert ordered.status_code == 202, ordered.text
        id_ = UUID(ordered.json()["id"])
        land.settle()
        while state(land.client, id_) == "rolling_back":
            land.make_due()
            land.settle()
        return state(land.client, id_), str(land.said(id_).get("reason"))

    failed, why = settled(plan=plan)
    assert (failed, "no gate of type SECURITY" in why) == ("failed", True), why
    refused, why = settled(commit_sha=sha)
    assert (refused, "does not undo" in why) == ("failed", True), why
    assert ((land.checkout / "app.py").read_text(), land.entry(patch)["state"]) == (before, "committed")
    assert settled()[0] == "rolled_back"


def proofs(dba: Dba, type_: str) -> list[tuple[str, str, str]]:
    """Trigger, actor and proof of each move of the instances of a type, in order."""
    return dba.execute(
        "SELECT trigger, triggered_by, proof FROM interlock.workflow_transitions WHERE workflow_type = %s "
        "ORDER BY position",
        (type_,),
    ).fetchall()


def test_operators_set_and_remove_budgets_and_their_events_name_the_token(
    call: Calls, client: Client, operator: str, dba: Dba
) -> None:
    wanted = WHY | {"kind": "actor", "name": "agent-7", "resource": "triggers"}
    assert call("POST", "/api/budgets", json=wanted | {"most": 100}).status_code == 403
    assert call("GET", "/api/budgets").json()["items"] == []
    made = call("POST", "/api/budgets", token=operator, json=wanted | {"most": 100})
    assert (made.status_code, made.json()["current_state"], made.json()["project"]) == (201, "in_force", "default")
    other = call("POST", "/api/budgets", token=operator, json=wanted | {"most": 1, "per_seconds": 3600})
    assert other.status_code == 201, other.text
    (listed,) = call("GET", "/api/budgets").json()["items"]
    assert (listed["budget_id"], listed["most"], listed["per_seconds"]) == (other.json()["id"], 1, 3600)
    client.create("story", "S-1")
    statuses = [call("POST", "/api/triggers?wait=0", json={"instance": "S-1", "trigger": "block"}) for _ in range(2)]
    assert [each.json()["status"] for each in statuses][1] == "waiting", "a brake holds what is beyond it"
    for wrong in ({"most": 1.5}, {"most": 0}, {"most": 10**13}, {"most": True}, {"resource": "air", "most": 1}):
        assert call("POST", "/api/budgets", token=operator, json=wanted | wrong).status_code == 422, wrong
    removed = call("POST", "/api/budgets/remove", token=operator, json=wanted)
    assert (removed.status_code, removed.json()["current_state"]) == (200, "removed")
    assert call("POST", "/api/budgets/remove", token=operator, json=wanted).status_code == 404
    moves = proofs(dba, "budget")
    assert [(each[0], each[1]) for each in moves] == [
        ("enforce", "ann"), ("remove", "ann"), ("enforce", "ann"), ("remove", "ann"),
    ]  # fmt: skip
    assert all(each[2].startswith("grant:") and " token:" in each[2] for each in moves)


def test_a_budget_of_a_run_is_of_the_runs_own_project(
    call: Calls, client: Client, land: Landscape, operator: str, dba: Dba, tmp_path: Path
) -> None:
    other, nobodys = Landscape(client.runtime, dba, tmp_path / "other", project="other").run, UUID(int=7)
    wanted = WHY | {"kind": "run", "resource": "usd", "most": 0.5}
    told = [
        call("POST", "/api/budgets", token=operator, json=wanted | {"name": str(each)}) for each in (other, nobodys)
    ]
    assert [each.status_code for each in told] == [404, 404]
    assert told[0].text.replace(str(other), "") == told[1].text.replace(str(nobodys), "")
    everywhere = token(client.runtime, "ann", "operator", None)
    said = wanted | {"name": str(other)}
    assert call("POST", "/api/budgets?project=default", token=everywhere, json=said).status_code == 404
    made = call("POST", "/api/budgets", token=operator, json=wanted | {"name": "demo"})
    assert (made.status_code, made.json()["context"]["name"]) == (201, str(land.run))
    gone = call(
        "POST", "/api/budgets/remove", token=operator, json=WHY | {"kind": "run", "name": "demo", "resource": "usd"}
    )
    assert gone.status_code == 200, gone.text


def test_operators_set_and_remove_limits_and_their_events_name_the_token(call: Calls, operator: str, dba: Dba) -> None:
    wanted = WHY | {"kind": "key", "name": "eu"}
    assert call("POST", "/api/limits", json=wanted | {"at_once": 3}).status_code == 403
    assert call("GET", "/api/limits").json()["items"] == []
    assert call("POST", "/api/limits", token=operator, json=wanted | {"at_once": 3}).status_code == 201
    both = call("POST", "/api/limits", token=operator, json=wanted | {"at_once": 4, "starts": 5, "per_seconds": 60})
    assert both.status_code == 201, both.text
    (listed,) = call("GET", "/api/limits").json()["items"]
    assert [listed[name] for name in ("limit_id", "at_once", "starts")] == [both.json()["id"], 4, 5]
    for wrong in (
        {},
        {"starts": 5},
        {"at_once": 0},
        {"at_once": True},
        {"kind": "type", "name": "storyy", "at_once": 1},
    ):
        assert call("POST", "/api/limits", token=operator, json=wanted | wrong).status_code == 422, wrong
    removed = call("POST", "/api/limits/remove", token=operator, json=wanted)
    assert (removed.status_code, removed.json()["current_state"]) == (200, "removed")
    assert call("POST", "/api/limits/remove", token=operator, json=wanted).status_code == 404
    moves = proofs(dba, "limit")
    assert [each[0] for each in moves] == ["enforce", "remove", "enforce", "remove"]
    assert all(each[2].startswith("grant:") and " token:" in each[2] for each in moves)


def test_dead_letters_are_redriven_within_the_tokens_project_only(call: Calls, client: Client, operator: str) -> None:
    own, other = set_aside(client, "S-1"), set_aside(client, "S-2", "other")
    (dead,) = call("GET", "/api/dead").json()["requests"]
    assert (dead["id"], dead["trigger"], dead["project"]) == (own, "block", "default")
    refused = call("POST", "/api/dead/redrive", token=operator, json=WHY | {"ids": [other]})
    assert (refused.status_code, "none of these" in refused.json()["detail"]) == (422, True)
    everything = call("POST", "/api/dead/redrive", token=operator, json=WHY | {"all": True}).json()
    assert everything == {"redriven": [], "left": {"quarantined": [own], "unreadable": []}}
    assert call("POST", "/api/dead/redrive", token=operator, json=WHY).status_code == 422
    done = call("POST", "/api/dead/redrive", token=operator, json=WHY | {"ids": [own, other]})
    assert done.json() == {"redriven": [own], "left": {}}
    (act,) = call("GET", "/api/instances?type=redrive").json()["items"]
    assert (act["context"], act["created_by"]) == ({"requests": [own], "effects": []}, "ann")
    (event,) = call("GET", f"/api/history/{act['id']}").json()["items"]
    assert (event["trigger"], event["triggered_by"], event["metadata"]["reason"]) == ("redrive", "ann", WHY["reason"])
    assert event["proof"].startswith("grant:")
    assert " token:" in event["proof"]
    assert call("GET", "/api/dead").json()["requests"] == []
    everywhere = token(client.runtime, "cyd", "read-only", None)
    assert [each["id"] for each in call("GET", "/api/dead", token=everywhere).json()["requests"]] == [other]


def test_what_is_stuck_says_the_request_that_cures_it(call: Calls, client: Client, operator: str, dba: Dba) -> None:
    set_aside(client, "S-1")
    story = client.show("S-1")["id"]
    age(dba, story, DAYS)
    found = call("GET", "/api/stuck").json()
    (stuck,) = found["items"]
    assert (found["total"], stuck["entity_id"], stuck["workflow_type"]) == (1, "S-1", "story")
    assert stuck["command"].startswith("interlock redrive ")
    cure = stuck["request"]
    answer = call(cure["method"], cure["path"], token=operator, json=cure["body"])
    assert answer.status_code == 200, answer.text
    drain_all(client.runtime)
    assert state(client, UUID(str(story))) == "blocked"
    assert call("GET", "/api/stuck?type=nothing").status_code == 422


def test_an_open_breaker_is_reset_by_an_operator(call: Calls, client: Client, operator: str) -> None:
    for _ in range(5):
        with calling(client.runtime, "default", "pytest") as made:
            made.failed("exit code 2")
    (listed,) = call("GET", "/api/breakers").json()["items"]
    assert (listed["tool_id"], listed["state"]) == ("pytest", "OPEN")
    assert call("POST", "/api/breakers/pytest/reset", json=WHY).status_code == 403
    late = call("POST", "/api/breakers/pytest/reset", token=operator, json=WHY | {"if_version": 0})
    assert (late.status_code, late.json()["type"]) == (409, "urn:interlock:problem:version-conflict")
    closed = call("POST", "/api/breakers/pytest/reset", token=operator, json=WHY)
    assert (closed.status_code, closed.json()["state"]) == (200, "CLOSED")
    assert call("GET", "/api/breakers/pytest").json()["configurations"] == []
    assert call("GET", "/api/breakers/make").status_code == 404


def test_a_phase_is_frozen_and_thawed_by_an_operator(call: Calls, client: Client, operator: str) -> None:
    applied(client, client.create("phase", "release")["id"], "open")
    client.create("phase", "release", project="other")
    (listed,) = call("GET", "/api/phases").json()["items"]
    assert (listed["phase"], listed["state"], listed["workstreams"]) == ("release", "open", 0)
    assert call("POST", "/api/phases/release/freeze", json=WHY).status_code == 403
    frozen = call("POST", "/api/phases/release/freeze", token=operator, json=WHY)
    assert (frozen.status_code, frozen.json()["current_state"]) == (200, "frozen")
    (listed,) = call("GET", "/api/phases?project=default").json()["items"]
    assert (listed["state"], listed["by"], listed["reason"]) == ("frozen", "ann", "a test")
    assert call("POST", "/api/phases/release/freeze", token=operator, json=WHY).status_code == 409
    late = call("POST", "/api/phases/release/thaw", token=operator, json=WHY | {"if_version": 0})
    assert (late.status_code, late.json()["type"]) == (409, "urn:interlock:problem:version-conflict")
    thawed = call("POST", "/api/phases/release/thaw", token=operator, json=WHY)
    assert (thawed.status_code, thawed.json()["current_state"]) == (200, "open")


@pytest.mark.parametrize(
    ("command", "method", "path", "body"),
    [
        (("phase", "thaw", "a/b"), "POST", "/api/phases/a%2Fb/thaw?project=default", {"reason": "WHY"}),
        (("job", "validate", ID), "POST", f"/api/jobs/{ID}/validate", {}),
        (("fire", ID, "block"), "POST", "/api/triggers", {"instance": ID, "trigger": "block"}),
        (("worker", "resume", ID), "POST", "/api/triggers", {"instance": ID, "trigger": "resume", "data": BECAUSE}),
        (
            ("regression", "approve", ID),
            "POST",
            "/api/triggers",
            {"instance": ID, "trigger": "approve", "data": BECAUSE},
        ),
        (("schedule", "show", "nightly"), "GET", "/api/instances/schedule/nightly?project=default", None),
        (("job", "show", ID), "GET", f"/api/instances/{ID}", None),
        (("doctor",), None, None, None),
    ],
)
def test_an_offered_command_is_a_request(
    command: tuple[str, ...], method: str | None, path: str | None, body: dict[str, object] | None
) -> None:
    found = as_request(offered(*command, **(BECAUSE if "WHY" in str(body) else {})), "default")
    assert found == (method and {"method": method, "path": path, "body": body})
    if path == "/api/triggers":
        TriggerOrderIn.model_validate(body)


def test_an_override_is_rehearsed_made_and_listed(call: Calls, land: Landscape, operator: str) -> None:
    patch = land.patch("no diff", "bad")
    land.settle()
    wanted = WHY | {"instance": "demo/w/bad^1"}
    rehearsed = call("POST", "/api/overrides/drop-patch", token=operator, json=wanted | {"dry_run": True})
    assert (rehearsed.status_code, rehearsed.json()["dry_run"]) == (200, True), rehearsed.text
    assert call("GET", "/api/overrides").json()["items"] == []
    assert call("POST", "/api/overrides/drop-patch", json=wanted).status_code == 403
    made = call("POST", "/api/overrides/drop-patch", token=operator, json=wanted)
    assert made.status_code == 200, made.text
    moves = call("GET", "/api/overrides?by=ann").json()["items"]
    assert {(each["workflow_id"], each["reason"]) for each in moves} == {(str(patch), "a test")}
    assert call("POST", "/api/overrides/rollback-patch", token=operator, json=wanted).status_code == 422


def test_a_report_is_signed_checked_and_noticed_if_it_was_changed(call: Calls, client: Client) -> None:
    story = client.create("story", "S-1")["id"]
    client.fire(story, "design_complete", by="bot")
    drain_all(client.runtime)
    made = call("GET", "/api/audit/report?instance=S-1")
    assert made.status_code == 200, made.text
    envelope = made.json()
    checked = call("POST", "/api/audit/report/check", json=envelope).json()
    assert (checked["ok"], checked["findings"], checked["events"]) == (True, [], 1)
    forged = base64.b64encode(base64.b64decode(envelope["payload"]).replace(b"bot", b"eve")).decode()
    checked = call("POST", "/api/audit/report/check", json=envelope | {"payload": forged}).json()
    assert (checked["ok"], checked["about"]) == (False, None)
    period = call("GET", "/api/audit/report?since=2026-01-01T00:00:00Z")
    assert json.loads(base64.b64decode(period.json()["payload"]))["predicate"]["scope"]["project"] == "default"
    assert call("GET", "/api/audit/report").status_code == 422
    assert call("GET", "/api/audit/report?since=2026-01-01T00:00:00Z&most=0").status_code == 422
    assert call("GET", "/api/audit").json() == {"items": []}


def test_operators_do_not_wait_for_reports(call: Calls, client: Client, operator: str, ann: None) -> None:
    story = client.create("story", "S-1")["id"]
    request_id, access = set_aside(client, "S-2"), call.app.state.access

    async def while_reports_wait() -> tuple[int, bool]:
        for _ in range(REPORTS):
            await access.reports.acquire()
        wanted = call.client.get(f"/api/audit/report?instance={story}", headers=bearing(call.token))
        waiting = asyncio.create_task(wanted)
        body = WHY | {"ids": [request_id]}
        done = await call.client.post("/api/dead/redrive", json=body, headers=bearing(operator))
        waits = not waiting.done()
        for _ in range(REPORTS):
            access.reports.release()
        await waiting
        return done.status_code, waits

    assert call.loop.run(while_reports_wait()) == (200, True)


def test_a_report_over_http_is_of_bounded_size(call: Calls, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    story = client.create("story", "S-1")["id"]
    client.fire(story, "block", by="agent-7")
    drain_all(client.runtime)
    monkeypatch.setattr(audit, "MOST_BYTES", 10)
    refused = call("GET", f"/api/audit/report?instance={story}")
    assert refused.status_code == 422
    assert "Ask for less" in refused.json()["detail"]


def test_admins_see_the_tokens_that_theirs_covers_and_revoke_them(call: Calls, client: Client, ann: None) -> None:
    runtime = client.runtime
    token(runtime, "cyd", projects=None)
    token(runtime, "eve", projects=("default", "other"))
    some, every = token(runtime, "ann", "admin"), token(runtime, "ann", "admin", None)
    listed = call("GET", "/api/tokens", token=some).json()["items"]
    assert {each["name"] for each in listed} == {"agent-7", "ann"}
    assert all(each["projects"] == ["default"] for each in listed)
    found = {each["name"]: each["token_id"] for each in call("GET", "/api/tokens", token=every).json()["items"]}
    assert {"cyd", "eve"} < found.keys()
    assert not any(key.startswith("secret") for each in listed for key in each)
    assert call("POST", f"/api/tokens/{found['cyd']}/revoke", token=some, json=WHY).status_code == 404
    gone = call("POST", f"/api/tokens/{found['cyd']}/revoke", token=every, json=WHY)
    assert [each["state"] for each in gone.json()["items"]] == ["revoked"]
    own = call("POST", f"/api/tokens/{found['agent-7']}/revoke", json=WHY)
    assert own.status_code == 200, own.text
    assert call("GET", "/api/stuck").status_code == 401


def test_an_admin_issues_a_token_that_only_the_answer_shows(
    call: Calls, client: Client, dba: Dba, capfd: pytest.CaptureFixture[str]
) -> None:
    admin = token(client.runtime, "ann", "admin")
    wanted = WHY | {"name": "bot", "role": "agent", "projects": ["default"], "expires_at": "2100-01-01T00:00:00Z"}
    made = call("POST", "/api/tokens", token=admin, json=wanted)
    assert (made.status_code, made.headers["cache-control"]) == (201, "no-store"), made.text
    issued = made.json()
    assert [issued[name] for name in ("name", "role", "issued_by", "reason")] == ["bot", "agent", "ann", "a test"]
    assert call("POST", "/api/instances", token=issued["token"], json={"type": "story", "entity_id": "S-1"}).is_success
    assert client.show("S-1")["created_by"] == "bot"
    (event,) = client.history(issued["token_id"])
    assert (event["triggered_by"], str(event["proof"]).split(" token:")[1]) == ("ann", str(id_of(client, admin)))
    listed = call("GET", "/api/tokens", token=admin)
    assert "bot" in {each["name"] for each in listed.json()["items"]}
    kept = dba.execute("SELECT string_agg(i::text, '') FROM interlock.workflow_instances i").fetchone()
    assert kept
    said = capfd.readouterr()
    assert issued["token"] not in listed.text + kept[0] + said.out + said.err
    again = call("POST", "/api/tokens", token=admin, json=wanted).json()
    assert again["token"] != issued["token"], "each is shown once, so a repetition issues another"


def test_no_token_issues_more_than_it_covers_itself(call: Calls, client: Client) -> None:
    until = datetime.now(UTC) + timedelta(hours=1)
    terms = TokenTerms("ann", "admin", ("default", "own"), until)
    admin, operator = issue(client.runtime, terms, ANN).token, token(client.runtime, "ann", "operator")
    covered = {"name": "bot", "role": "read-only", "projects": ["own"], "expires_at": until.isoformat()}

    def status(token: str, **other: object) -> int:
        return call("POST", "/api/tokens", token=token, json=WHY | covered | other).status_code

    assert status(operator) == 403
    assert status(call.token) == 403
    assert status(admin, projects=None) == 403
    assert status(admin, projects=["default", "other"]) == 403
    assert status(admin, expires_at=None) == 403
    assert status(admin, expires_at=(until + timedelta(seconds=1)).isoformat()) == 403
    assert status(admin, role="operator") == 409, "its name has no operator's grant"
    assert status(admin, name="ann") == 409, "an operator's name has no other token"
    assert status(admin, expires_at="2026-01-01T00:00:00Z") == 409, "that has passed"
    assert status(admin, expires_at="2100-01-01T00:00:00") == 422, "without a time zone"
    assert status(admin, projects=[]) == 422
    assert status(admin, reason="") == 422
    assert {each["name"] for each in call("GET", "/api/tokens?all=true", token=admin).json()["items"]} == {
        "agent-7", "ann",
    }  # fmt: skip
    assert status(admin) == 201


def test_limits_and_subscriptions_are_listed_and_events_delivered_again(
    call: Calls, client: Client, operator: str, dba: Dba
) -> None:
    runtime = client.runtime
    limits.set_limit(runtime, LimitedName("key", "eu"), ANN, at_once_most=3)
    wanted = WantedEvents()
    subscriptions.subscribe(runtime, "chat", "https://chat.example/", ANN, secrets=["env:X"], wanted=wanted)
    (limit,) = call("GET", "/api/limits").json()["items"]
    assert (limit["name"], limit["at_once"], limit["uses"][0]["room"]) == ("eu", 3, 3)
    (listed,) = call("GET", "/api/subscriptions").json()["items"]
    assert (listed["name"], listed["state"]) == ("chat", "active")
    said = WHY | {"since": "2026-01-01T00:00:00Z"}
    assert call("POST", "/api/subscriptions/chat/replay", json=said).status_code == 403
    assert call("POST", "/api/subscriptions/chat/replay", token=operator, json=WHY).status_code == 422
    again = call("POST", "/api/subscriptions/chat/replay", token=operator, json=said)
    assert again.status_code == 200, again.text
    assert again.json()["events"] > 0
