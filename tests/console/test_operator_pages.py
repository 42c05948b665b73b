"""What operators see and do on their pages: each act goes the way of the commands, in the session's name."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from interlock.db.connection import transaction
from interlock.db.core import instances
from interlock.workers.client.client import Client
from interlock.workers.orchestration.submission import submit
from interlock.workers.overrides.brakes import put_brake
from interlock.workers.overrides.budgets import Budgeted, set_budget
from interlock.workers.overrides.limits import LimitedName, set_limit
from interlock.workers.overrides.phases import freeze
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.pool.agent import Agent
from interlock.workers.runtime import Runtime
from interlock.workers.schedules import creating
from interlock.workers.supervision.actions import ActionOrder
from interlock.workers.supervision.jobs import Jobs
from interlock.workflows.plan.read import read_plan
from tests.driving import drain_all, drain_failing, outcome, state, with_a_dead_request
from tests.running import PHASED
from tests.stuck import age
from tests.visiting import Visits
from tests.working import settle

pytestmark = pytest.mark.integration
Dba = "psycopg.Connection[Any]"
BY_SCRIPT = {"HX-Request": "true"}
WHY = {"reason": "a test"}
ALL = None
PLACED = {"S-1": "default", "S-2": "default", "S-3": "other"}


def newest(client: Client, ref: UUID) -> dict[str, Any]:
    return dict(client.history(ref)[-1])


def test_a_dead_trigger_is_redriven_from_its_page_and_history_says_by_whom(
    visit: Visits, make_runtime: Callable[..., Runtime], client: Client, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = with_a_dead_request(make_runtime(max_attempts=1), project, monkeypatch)
    ann = visit.by("ann", "operator")
    shown = ann.get("/dead").text
    assert "block" in shown
    assert "block it" in shown
    assert "Redrive" in visit.by("bot", "read-only").get("/dead").text
    assert 'action="/dead/redrive"' not in visit.by("bot", "read-only").get("/dead").text
    assert "block it" not in visit.by("eve", "agent", ("other",)).get("/dead").text
    said = ann.post("/dead/redrive", data={"id": "block it", "project": project, **WHY}, headers=BY_SCRIPT)
    assert (said.status_code, said.headers["hx-trigger"]) == (200, "changed"), said.text
    drain_all(client.runtime)
    event = newest(client, story)
    assert (event["trigger"], event["metadata"]["redriven_by"]) == ("block", "ann")
    assert event["metadata"]["redriven_because"] == "a test"


def test_all_that_is_dead_in_a_project_is_redriven_at_once_and_nothing_of_another(
    visit: Visits, make_runtime: Callable[..., Runtime], client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = make_runtime(max_attempts=1)
    stories = {name: client.create("story", name, project=where)["id"] for name, where in PLACED.items()}
    for ref in stories.values():
        client.fire(ref, "block", by="bob")
    drain_failing(runtime, monkeypatch)
    ann = visit.by("ann", "operator", ALL)
    assert 'href="/dead">3 dead</a>' in ann.get("/").text
    assert 'href="/dead">3 dead</a>' not in visit.by("bot", "read-only", ALL).get("/").text
    page = ann.get("/dead").text
    assert ("Redrive all of default" in page, "Redrive all of other" in page) == (True, False)
    said = ann.post("/dead/redrive-all", data={"project": "default", **WHY}, headers=BY_SCRIPT)
    assert "2 in default are tried again." in said.text
    drain_all(client.runtime)
    assert {name: state(client, ref) for name, ref in stories.items()} == {
        "S-1": "blocked", "S-2": "blocked", "S-3": "analysis"
    }  # fmt: skip
    assert newest(client, stories["S-1"])["metadata"]["redriven_because"] == "a test"


def test_budgets_and_limits_show_what_is_used_of_what(visit: Visits, client: Client) -> None:
    order = OverrideOrder("ann", "a test")
    set_budget(client.runtime, Budgeted("actor", "bot"), "triggers", order, most=5, per_seconds=3600)
    set_limit(client.runtime, LimitedName("type", "story"), order, at_once_most=2)
    client.fire(client.create("story", "S-1")["id"], "block", by="bot")
    drain_all(client.runtime)
    page = visit.by("bot").get("/brakes").text
    assert "triggers, at most 5 in 1 h" in page
    assert "bot: 1 of 5" in page
    assert "2 at once" in page
    assert "No brake is on." in page
    elsewhere = visit.by("bot", projects=("other",)).get("/brakes").text
    assert ("No budget is in force." in elsewhere, "No limit is in force." in elsewhere) == (True, True)


def test_a_brake_is_released_from_its_page_with_the_proof_of_the_session(visit: Visits, client: Client) -> None:
    story = client.create("story", "S-1")["id"]
    brake = put_brake(client.runtime, "actor", "agent-7", OverrideOrder("ann", "it deletes tests"))
    request = client.fire(story, "block", by="agent-7").request_id
    drain_all(client.runtime)
    ann = visit.by("ann", "operator")
    page = ann.get("/brakes").text
    assert "it deletes tests" in page
    assert "story/S-1" in page
    form = {"name": brake["entity_id"], "project": "default", **WHY}
    refused = visit.by("bot", "agent").post("/brakes/release", data=form, headers=BY_SCRIPT)
    assert (refused.status_code, "operator" in refused.text) == (403, True)
    assert ann.post("/brakes/release", data=form, headers=BY_SCRIPT).status_code == 200
    with transaction(client.runtime.database) as connection:
        connection.exec_driver_sql("SELECT 1")
    drain_all(client.runtime)
    event = newest(client, brake["id"])
    assert (event["trigger"], event["triggered_by"], "token:" in str(event["proof"])) == ("release", "ann", True)
    assert outcome(client, request)["status"] == "applied"
    assert "No brake is on" in ann.get("/brakes").text


def test_an_approval_is_decided_by_two_people_and_shows_why_others_may_not(visit: Visits, client: Client) -> None:
    terms = {"author": "cyd", "quorum": 2, "deciders": ["dan", "eve"], "subject": "the release"}
    asked = client.create("approval", "A-1", context=terms)["id"]
    dan, eve, bot = visit.by("dan"), visit.by("eve"), visit.by("bot")
    assert "the release" in dan.get("/approvals").text
    assert "Nothing waits for you" in bot.get("/approvals").text
    assert "Who may: dan, eve." in bot.get(f"/approvals/{asked}").text
    vote = {"trigger": "approve", **WHY}
    refused = bot.post(f"/instances/{asked}/fire", data=vote, headers=BY_SCRIPT)
    assert refused.status_code == 403
    assert dan.post(f"/instances/{asked}/fire", data=vote, headers=BY_SCRIPT).status_code == 200
    drain_all(client.runtime)
    assert "You have approved it" in dan.get(f"/approvals/{asked}").text
    page = eve.get(f"/approvals/{asked}").text
    assert "1 of 2: dan" in page
    assert page.count("<dt>Expires</dt>") == 1
    assert eve.post(f"/instances/{asked}/fire", data=vote, headers=BY_SCRIPT).status_code == 200
    drain_all(client.runtime)
    assert state(client, asked) == "approved"
    assert [each["triggered_by"] for each in client.history(asked)] == ["dan", "eve"]
    assert "It is decided: approved." in eve.get(f"/approvals/{asked}").text


def test_what_is_stuck_is_shown_with_its_cure_as_a_button(visit: Visits, client: Client, dba: Dba) -> None:
    story = client.create("story", "S-1")["id"]
    age(dba, story, 10 * 86_400)
    ann = visit.by("ann", "operator")
    page = ann.get("/stuck").text
    assert "nobody has fired a trigger" in page
    assert f'action="/instances/{story}/fire"' in page
    reader = visit.by("bot", "read-only").get("/stuck").text
    assert f'action="/instances/{story}/fire"' not in reader
    assert "your session is read-only" in reader
    assert "S-1" not in visit.by("eve", "agent", ("other",)).get("/stuck").text


def test_a_brake_that_stands_for_long_is_released_from_what_is_stuck(visit: Visits, client: Client, dba: Dba) -> None:
    brake = put_brake(client.runtime, "actor", "agent-7", OverrideOrder("ann", "it deletes tests"))
    drain_all(client.runtime)
    age(dba, brake["id"], 10 * 86_400)
    page = visit.by("ann", "operator").get("/stuck").text
    assert "it holds actor agent-7 until an operator releases it: it deletes tests" in page
    assert 'action="/brakes/release"' in page


def cures(page: str) -> dict[str, dict[str, str]]:
    """The buttons of what is stuck: address -> hidden fields."""
    forms = re.findall(r'<form method="post" action="([^"]+)"(.*?)</form>', page.split("<main", 1)[1], re.S)
    return {url: dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', inside)) for url, inside in forms}


def test_a_frozen_phase_is_thawed_from_what_is_stuck_at_the_version_shown(
    visit: Visits, client: Client, tmp_path: Path
) -> None:
    run = submit(client.runtime, read_plan(PHASED), by="bob", directory=tmp_path)
    settle(client, run.id)
    freeze(client.runtime, "release", OverrideOrder("ann", "code freeze"), project=run.project)
    ann = visit.by("ann", "operator", (run.project,))
    fields = cures(ann.get("/stuck?all=true").text)["/phases/thaw"]
    assert (fields["name"], fields["project"], fields["if_version"]) == ("release", run.project, "2")
    reader = visit.by("bot", "agent", (run.project,))
    assert "/phases/thaw" not in cures(reader.get("/stuck?all=true").text)
    assert reader.post("/phases/thaw", data=fields | WHY, headers=BY_SCRIPT).status_code == 403
    assert ann.post("/phases/thaw", data=fields | WHY | {"if_version": "7"}, headers=BY_SCRIPT).status_code == 409
    said = ann.post("/phases/thaw", data=fields | WHY, headers=BY_SCRIPT)
    assert (said.status_code, "What it held goes on" in said.text) == (200, True), said.text
    with transaction(client.runtime.database) as connection:
        phase = instances.find(connection, "release", run.project, "phase")
    event = newest(client, phase["id"])
    assert (event["trigger"], event["triggered_by"], "token:" in str(event["proof"])) == ("thaw", "ann", True)
    assert "/phases/thaw" not in cures(ann.get("/stuck?all=true").text)


def test_a_job_is_validated_from_what_is_stuck(visit: Visits, client: Client) -> None:
    job = Jobs(client).submit("build", project="default", order=ActionOrder("dan")).subject["id"]
    drain_all(client.runtime)
    ann, bot, url = visit.by("ann", "operator"), visit.by("bot"), f"/jobs/{job}/validate"
    assert url in cures(ann.get("/stuck?all=true").text)
    refused = bot.post(url, data=WHY, headers=BY_SCRIPT)
    assert (refused.status_code, "who created it" in refused.text) == (403, True)
    assert state(client, job) == "SUBMITTED"
    said = ann.post(url, data=WHY, headers=BY_SCRIPT)
    assert (said.status_code, "waits for its workers" in said.text) == (200, True), said.text
    assert state(client, job) == "PENDING"
    event = newest(client, job)
    assert (event["triggered_by"], event["metadata"]["reason"], "token:" in str(event["proof"])) == (
        "ann",
        "a test",
        True,
    )
    assert ann.post(url, data=WHY, headers=BY_SCRIPT).status_code == 409


def test_what_only_a_shell_can_do_is_shown_with_the_reason(visit: Visits, client: Client, tmp_path: Path) -> None:
    run = submit(client.runtime, read_plan(PHASED), by="bob", directory=tmp_path)
    settle(client, run.id)
    page = visit.by("ann", "operator", (run.project,)).get("/stuck?all=true").text
    assert "<code>interlock up --detach</code>" in page
    assert "It starts or asks processes of a machine, which a page cannot." in page


def test_a_cure_that_is_no_longer_right_is_refused_with_the_reason(visit: Visits, client: Client, dba: Dba) -> None:
    story = client.create("story", "S-1")["id"]
    client.fire(story, "block", by="bob")
    drain_all(client.runtime)
    form = {"trigger": "design_complete", "if_version": "0", **WHY}
    visit.by("ann", "operator").post(f"/instances/{story}/fire", data=form, headers=BY_SCRIPT)
    drain_all(client.runtime)
    assert state(client, story) == "blocked"


def test_workers_show_what_they_hold_and_are_shut_down_by_operators_of_all_projects(
    visit: Visits, client: Client
) -> None:
    agent = Agent("agent-7", capabilities=("python",), runtime=client.runtime)
    worker = agent.register()
    ann = visit.by("ann", "operator", ALL)
    assert "agent-7" in ann.get("/workers").text
    assert "agent-7" not in visit.by("ann", "operator").get("/workers").text
    url = f"/workers/{worker}/shutdown"
    assert visit.by("ann", "operator").post(url, data=WHY, headers=BY_SCRIPT).status_code == 404
    said = ann.post(url, data={**WHY, "now": "true"}, headers=BY_SCRIPT)
    assert (said.status_code, "It is shut down" in said.text) == (200, True), said.text
    event = newest(client, UUID(str(worker)))
    assert (event["to_state"], event["triggered_by"], "token:" in str(event["proof"])) == ("shutdown", "ann", True)
    assert "agent-7" not in ann.get("/workers").text
    assert "agent-7" in ann.get("/workers?ended=true").text


def test_a_schedule_shows_its_next_five_times_and_is_paused_by_whoever_created_it(
    visit: Visits, client: Client
) -> None:
    does = {"create": {"type": "story", "name": "standup-%due", "context": {}}}
    made = creating.create_schedule(client, "standup", {"cron": "0 9 * * *"}, does, by="dan")["id"]
    dan = visit.by("dan")
    page = dan.get("/schedules").text
    assert page.count("09:00 UTC") == creating.NEXT
    assert "create story/standup-%due" in page
    assert "Who may: dan, who created it." in visit.by("eve").get("/schedules").text
    form = {"trigger": "pause", **WHY}
    assert dan.post(f"/instances/{made}/fire", data=form, headers=BY_SCRIPT).status_code in (200, 202)
    drain_all(client.runtime)
    assert state(client, made) == "paused"
    assert "If it is resumed" in dan.get("/schedules").text


def test_history_is_searched_within_the_projects_of_the_session(visit: Visits, client: Client) -> None:
    for project in ("default", "other"):
        made = client.create("story", f"S-{project}", project=project)["id"]
        client.fire(made, "block", by="bob", data={"reason": f"because of {project}"})
    drain_all(client.runtime)
    dan = visit.by("dan")
    found = dan.get("/history?trigger=block&by=bob").text
    assert "because of default" in found
    assert "because of other" not in found
    assert "Nothing matches" in dan.get("/history?name=S-other").text
    assert dan.get("/history?since=yesterday").status_code == 422
    assert "because of other" in visit.by("ann", "operator", ALL).get("/history?name=S-other").text
