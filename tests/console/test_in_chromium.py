"""The console in a real browser, over a real server."""

from pathlib import Path
from uuid import UUID

import pytest
from playwright.sync_api import Browser, Page, expect

from interlock.console.pages.register import PAGES
from interlock.workers.client.client import Client
from interlock.workers.overrides.tokens import list_tokens
from interlock.workers.settings import Settings
from tests.browsing import Window, window
from tests.calling import token
from tests.driving import drain_all
from tests.serving import served_here, serving
from tests.visiting import link
from tests.waiting import eventually

pytestmark = pytest.mark.integration


def test_a_link_signs_in_once_and_leaves_no_trace_in_the_address(
    settings: Settings, client: Client, ann: None, tmp_path: Path, browser: Browser
) -> None:
    with serving(settings, tmp_path / "api.log") as (_, url), window(browser) as one, window(browser) as two:
        secret = link(client.runtime, "ann", "operator")
        page = one.sign_in(url, secret)
        assert page.title() == "Overview · Interlock"
        assert page.evaluate("history.length") <= 3
        (cookie,) = one.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"], cookie["secure"]) == (True, "Strict", False)
        assert one.faults == []
        two.page.goto(f"{url}/sign-in#{secret}")
        two.page.get_by_text("has been used").wait_for()
        page.get_by_role("button", name="Sign out").click()
        page.wait_for_url(f"{url}/sign-in")
        page.goto(url)
        page.wait_for_url(f"{url}/sign-in")
    assert secret not in (tmp_path / "api.log").read_text()


def test_what_is_fired_in_one_window_is_seen_in_another_without_a_reload(
    settings: Settings, client: Client, ann: None, browser: Browser
) -> None:
    story = client.create("story", "S-1")["id"]
    client.create("story", "S-2")
    with served_here(settings) as url, window(browser) as one, window(browser) as two:
        firing = one.sign_in(url, link(client.runtime, "bot"))
        watching = two.sign_in(url, link(client.runtime, "eve", "read-only"))
        watching.goto(f"{url}/instances/{story}")
        expect(watching.locator("h1 .state").first).to_have_text("analysis")
        expect(watching.locator("#live")).to_have_attribute("data-state", "on")
        assert watching.get_by_role("button", name="design_complete").count() == 0

        firing.goto(f"{url}/instances?type=story")
        firing.get_by_label("Name").fill("S-1")
        firing.get_by_role("button", name="Filter").click()
        expect(firing.locator("tr[data-row]")).to_have_count(1)
        firing.get_by_role("link", name="story/S-1").click()
        expect(firing.locator(".node.lit")).to_have_attribute("data-node", "analysis")
        firing.get_by_role("button", name="design_complete").click()
        _until_moved(client, story)
        expect(firing.locator(".said")).to_contain_text("design_complete")
        expect(watching.locator("h1 .state").first).to_have_text("design")
        expect(watching.locator(".node.lit")).to_have_attribute("data-node", "design")
        expect(watching.locator("tr[data-seq]")).to_contain_text("bot")
        watching.locator("#scrub").press("Home")
        expect(watching.locator(".node.lit")).to_have_attribute("data-node", "analysis")


def test_a_page_that_nothing_changes_asks_again_and_says_how_old_it_is_when_nobody_answers(
    settings: Settings, client: Client, ann: None, browser: Browser
) -> None:
    with served_here(settings) as url, window(browser) as one:
        page = one.sign_in(url, link(client.runtime, "eve", "read-only"))
        page.clock.install()
        page.goto(f"{url}/brakes")
        expect(page.locator("#live")).to_have_attribute("data-state", "on")
        with page.expect_request(lambda asked: asked.headers.get("hx-request") == "true"):
            page.clock.run_for(30_000)
        expect(page.locator("#live")).to_have_text("live")
        page.route("**/brakes", lambda route: route.abort())
        page.clock.run_for(30_000)
        expect(page.locator("#live")).to_contain_text("as of ")
        page.unroute("**/brakes")
        page.clock.run_for(20_000)
        page.clock.resume()
        expect(page.locator("#live")).to_have_text("live", timeout=10_000)


def _until_moved(client: Client, story: UUID) -> None:
    def moved() -> bool:
        drain_all(client.runtime)
        return bool(client.history(story))

    eventually(moved)


def _press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def test_it_is_worked_from_the_keyboard(settings: Settings, client: Client, ann: None, browser: Browser) -> None:
    for number in range(3):
        client.create("story", f"S-{number}")
    with served_here(settings) as url, window(browser) as one:
        page = one.sign_in(url, link(client.runtime, "ann", "operator"))
        page.keyboard.press("?")
        expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
        _press(page, "Escape", "g", "i")
        page.wait_for_url(f"{url}/instances")
        _press(page, "j", "j", "j", "k", "Enter")
        page.wait_for_url(f"{url}/instances/*")
        page.go_back()
        page.keyboard.press("/")
        expect(page.locator("[data-filter]")).to_be_focused()
        page.keyboard.press("Control+k")
        page.keyboard.type("S-2")
        expect(page.get_by_role("option", name="story/S-2")).to_be_visible()
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_contain_text("story/S-2")


def test_projects_are_chosen_from_the_keyboard_and_from_the_palette(
    settings: Settings, client: Client, ann: None, browser: Browser
) -> None:
    for project in ("default", "other"):
        client.create("story", f"S-{project}", project=project)
    with served_here(settings) as url, window(browser) as one:
        page = one.sign_in(url, link(client.runtime, "ann", "operator", None))
        _press(page, "g", "i")
        page.wait_for_url(f"{url}/instances")
        page.keyboard.press("p")
        expect(page.locator("#projects a", has_text="all projects")).to_be_focused()
        assert one.serious() == []
        page.keyboard.press("Escape")
        expect(page.locator("#projects ul")).to_be_hidden()
        _press(page, "Enter", "Tab", "Tab", "Tab", "Enter")  # its summary has the focus
        page.wait_for_url(f"{url}/instances?project=other")
        expect(page.locator("tr[data-row]")).to_have_count(1)
        page.keyboard.press("Control+k")
        page.keyboard.type("S-other")
        expect(page.get_by_role("option", name="story/S-other")).to_be_visible()
        page.keyboard.press("Enter")
        page.wait_for_url(f"{url}/instances/*?project=other")
        _press(page, "g", "b")
        page.wait_for_url(f"{url}/boards/story?project=other")
        page.keyboard.press("Control+k")
        page.keyboard.type("all proj")
        page.keyboard.press("Enter")
        page.wait_for_url(f"{url}/boards/story?project=")
        expect(page.locator(".board li")).to_have_count(2)
        assert [each for each in one.faults if "Failed to load resource" not in each] == []


def test_an_action_asks_for_its_reason_and_says_what_became_of_it(
    settings: Settings, client: Client, ann: None, browser: Browser
) -> None:
    token(client.runtime, "agent-7")
    with served_here(settings) as url, window(browser) as one:
        page = one.sign_in(url, link(client.runtime, "ann", "admin", None))
        page.goto(f"{url}/tokens")
        row = page.locator("tr[data-row]", has_text="agent-7")
        row.locator("summary").click()
        row.get_by_role("button", name="Revoke").click()
        assert page.locator(".said").count() == 0  # no reason is given yet
        row.get_by_label("Reason").fill("its machine was sold")
        row.get_by_role("button", name="Revoke").click()
        expect(page.locator(".said")).to_contain_text("Revoked")
        expect(row).to_have_count(0)
    (ended,) = [each for each in list_tokens(client.runtime, ended=True) if each["name"] == "agent-7"]
    assert (ended["state"], ended["ended_by"]) == ("revoked", "ann")


def test_nothing_keeps_anybody_out(settings: Settings, client: Client, ann: None, browser: Browser) -> None:
    story = client.create("story", "S-1", context={"title": "A story"})["id"]
    client.fire(story, "design_complete", by="agent-7", data={"reason": "ready", "note": "x"})
    drain_all(client.runtime)
    with served_here(settings) as url, window(browser) as one:
        page = one.sign_in(url, link(client.runtime, "ann", "admin", None))
        for path in (*(each.path for each in PAGES), "/boards/story", f"/instances/{story}", "/licences", "/nowhere"):
            page.goto(url + path)
            assert one.unreadable() == {}, path
        page.keyboard.press("Control+k")
        assert one.unreadable() == {}
        page.keyboard.press("Escape")
        page.goto(f"{url}/instances/{story}")
        page.emulate_media(media="print")
        for look in one.looks():
            assert not page.locator("nav").is_visible(), look
        _refuses_what_is_not_ours(one)


def _refuses_what_is_not_ours(one: Window) -> None:
    one.page.evaluate(
        "document.body.append(Object.assign(document.createElement('img'), {src: 'https://example.org/x'}))"
    )
    one.page.evaluate("document.body.insertAdjacentHTML('beforeend', '<p onclick=\"window.ran = 1\" id=bad>x</p>')")
    one.page.locator("#bad").dispatch_event("click")
    assert one.page.evaluate("window.ran") is None
    assert any("Content Security Policy" in each for each in one.faults)
