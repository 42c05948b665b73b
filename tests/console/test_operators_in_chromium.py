"""Operators' pages in a real browser: two people decide, a dead letter is redriven, a brake is released, seen live."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from playwright.sync_api import Browser, Page

from interlock.workers.client.client import Client
from interlock.workers.orchestration.submission import submit
from interlock.workers.overrides.brakes import put_brake
from interlock.workers.overrides.phases import freeze
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.pool.agent import Agent
from interlock.workers.runtime import Runtime
from interlock.workers.schedules import creating
from interlock.workers.settings import Settings
from interlock.workflows.plan.read import read_plan
from tests.browsing import Window, window
from tests.console.test_operator_pages import PHASED
from tests.driving import drain_all, state, with_a_dead_request
from tests.running import GATED_PAIR, Stage
from tests.serving import served_here
from tests.visiting import link
from tests.working import settle

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
REASON = "looked at it"


@pytest.fixture
def url(settings: Settings, ann: None) -> Iterator[str]:
    with served_here(settings) as address:
        yield address


def wrong(one: Window) -> list[str]:
    """What went wrong in a window's scripts and against its policy; a missing stream of events is another test's."""
    return [each for each in one.faults if "Failed to load resource" not in each]


def act(page: Page, label: str) -> None:
    """Open an action, give the reason, and take it."""
    page.locator("details.action > summary", has_text=f"{label}…").first.click()
    opened = page.locator("details.action[open]")
    opened.get_by_label("Reason").fill(REASON)
    opened.get_by_role("button", name=label).click()


def test_two_people_decide_an_approval_and_each_sees_the_others_vote(
    url: str, client: Client, browser: Browser
) -> None:
    terms = {"author": "cyd", "quorum": 2, "deciders": ["dan", "eve"], "subject": "the release"}
    asked = client.create("approval", "A-1", context=terms)["id"]
    with window(browser) as one, window(browser) as two:
        dan, eve = (each.sign_in(url, link(client.runtime, name)) for each, name in ((one, "dan"), (two, "eve")))
        dan.goto(f"{url}/approvals")
        dan.get_by_role("link", name="the release").click()
        eve.goto(f"{url}/approvals/{asked}")
        act(dan, "Approve")
        dan.get_by_text("approve is accepted").or_(dan.get_by_text("approve: pending")).first.wait_for()
        drain_all(client.runtime)
        eve.get_by_text("1 of 2: dan").wait_for()
        dan.get_by_text("You have approved it").wait_for()
        act(eve, "Approve")
        eve.locator("#notice .said").wait_for()
        drain_all(client.runtime)
        dan.get_by_text("It is decided: approved.").wait_for()
        assert wrong(one) == wrong(two) == []
        assert two.serious() == []
    assert state(client, asked) == "approved"


def test_a_dead_letter_is_redriven_and_a_brake_released(
    url: str,
    client: Client,
    make_runtime: Callable[..., Runtime],
    project: str,
    monkeypatch: pytest.MonkeyPatch,
    browser: Browser,
) -> None:
    story = with_a_dead_request(make_runtime(max_attempts=1), project, monkeypatch)
    other = client.create("story", "S-2")["id"]
    put_brake(client.runtime, "actor", "agent-7", OverrideOrder("ann", "it deletes tests"))
    client.fire(other, "block", by="agent-7")
    drain_all(client.runtime)
    with window(browser) as one, window(browser) as two:
        ann, bot = (
            each.sign_in(url, link(client.runtime, name, role))
            for each, name, role in ((one, "ann", "operator"), (two, "bot", "read-only"))
        )
        ann.goto(f"{url}/dead")
        bot.goto(f"{url}/brakes")
        act(ann, "Redrive")
        ann.get_by_text("Redriven").wait_for()
        drain_all(client.runtime)
        assert state(client, story) == "blocked"
        bot.get_by_text("it deletes tests").wait_for()
        bot.get_by_text("It is for operators").wait_for()
        assert bot.locator("details.action").count() == 0
        ann.goto(f"{url}/brakes")
        act(ann, "Release")
        ann.get_by_text("What it held goes on").wait_for()
        drain_all(client.runtime)
        bot.get_by_text("No brake is on.").wait_for()
        assert state(client, other) == "blocked"
        assert wrong(one) == wrong(two) == []


def furnished(client: Client, stage: Stage) -> UUID:
    """Something on every page; returns the approval."""
    stage.submit(*GATED_PAIR)
    stage.start()
    stage.begin("a")
    Agent("agent-7", capabilities=("python",), runtime=client.runtime).register()
    does = {"create": {"type": "story", "name": "standup-%due", "context": {}}}
    creating.create_schedule(client, "standup", {"cron": "0 9 * * *"}, does, by="dan")
    put_brake(client.runtime, "actor", "agent-9", OverrideOrder("ann", "it deletes tests"))
    asked = client.create("approval", "A-1", context={"author": "cyd", "subject": "the release"})
    return UUID(str(asked["id"]))


def test_every_page_reads_well_on_a_screen_in_the_dark_and_on_a_phone(
    url: str, client: Client, dba: Any, project: str, browser: Browser
) -> None:
    stage = Stage(client.runtime, dba, project)
    asked = furnished(client, stage)
    dba.execute("UPDATE workflow_instances SET updated_at = now() - interval '9 days' WHERE id = %s", (asked,))
    pages = [
        "/runs", f"/runs/{stage.run}", f"/tasks/{stage.ids['a']}", f"/gates/{stage.ids['g']}", "/approvals",
        f"/approvals/{asked}", "/stuck", "/dead", "/brakes", "/breakers", "/workers", "/schedules", "/history",
    ]  # fmt: skip
    with window(browser) as one:
        ann = one.sign_in(url, link(client.runtime, "ann", "operator", None))
        for path in pages:
            ann.goto(f"{url}{path}")
            ann.locator("h1").wait_for()
            if path.startswith("/runs/"):
                ann.locator(".graph svg").wait_for()
            assert one.unreadable() == {}, path
            assert wrong(one) == [], path


def test_a_frozen_phase_is_thawed_and_a_command_for_a_shell_is_copied(
    url: str, client: Client, browser: Browser, tmp_path: Path
) -> None:
    run = submit(client.runtime, read_plan(PHASED), by="bob", directory=tmp_path)
    settle(client, run.id)
    freeze(client.runtime, "release", OverrideOrder("ann", "code freeze"), project=run.project)
    with window(browser) as one:
        one.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = one.sign_in(url, link(client.runtime, "ann", "operator", None))
        page.goto(f"{url}/stuck?all=true")
        page.get_by_role("button", name="Copy").locator("visible=true").first.click()
        page.get_by_role("button", name="Copied").wait_for()
        assert page.evaluate("navigator.clipboard.readText()") == "interlock up --detach"
        assert page.evaluate("getSelection().toString()") == "interlock up --detach"
        assert one.serious() == []
        act(page, "Thaw the phase")
        page.get_by_text("What it held goes on.").wait_for()
        assert wrong(one) == []
