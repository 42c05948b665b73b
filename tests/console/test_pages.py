"""Pages: every route by role and project, the headers of each, and what a visitor is offered."""

import re
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple
from uuid import UUID

import pytest
from fastapi.routing import APIRoute

from interlock.console import static_files
from interlock.console.app import ROUTERS
from interlock.console.pages import instances
from interlock.console.pages.register import PAGES
from interlock.console.static_files import FOLDER
from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.client.client import Client
from interlock.workers.overrides.tokens import list_tokens
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from interlock.workflows.machines.governance.api_token import ROLES, Role
from tests import databases
from tests.calling import token
from tests.console.rights import RIGHTS, WITHOUT
from tests.driving import drain_all
from tests.visiting import Visitor, Visits, visits

pytestmark = pytest.mark.integration
NAMES: dict[Role, str] = {"read-only": "bot", "agent": "bot", "operator": "ann", "admin": "ann"}
BY_SCRIPT = {"HX-Request": "true"}


def place(client: Client, project: str) -> dict[str, UUID]:
    """A project, with a story and a token of somebody else."""
    token(client.runtime, f"cyd-{project}", projects=(project,))
    (row,) = [each for each in list_tokens(client.runtime) if each["name"] == f"cyd-{project}"]
    asked = client.create("approval", "A-1", project=project, context={"author": "dan"})
    story = client.create("story", "S-1", project=project)
    return {"story": story["id"], "approval": asked["id"], "token": row["token_id"]}


def test_every_route_has_its_row() -> None:
    routes = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    assert {(method, each.path) for each in routes for method in each.methods} == set(RIGHTS) | WITHOUT


class Scene(NamedTuple):
    """The console over two projects, and who visits it: a session of each role, and a stranger."""

    places: dict[str, dict[str, UUID]]
    visitors: dict[Role, Visitor]
    stranger: Visitor


@pytest.fixture(scope="module")
def scene(servers: Servers, template_with_ann: str, default_settings: Settings) -> Iterator[Scene]:
    """One for all routes: none of them takes away what another one needs."""
    with databases.copy_of(servers, template_with_ann) as url, pytest.MonkeyPatch.context() as patched:
        patched.setattr(instances, "WAIT_SECONDS", 0.0)
        runtime = Runtime(default_settings.model_copy(update={"database_url": url, "broker_url": servers.broker_url}))
        with closing(runtime), visits(runtime.settings, runtime) as visit:
            places = {each: place(Client(runtime), each) for each in ("default", "other")}
            visitors = {role: visit.by(NAMES[role], role) for role in ROLES}
            yield Scene(places, visitors, visit.anybody())


@pytest.mark.parametrize(("method", "path"), [*RIGHTS], ids=" ".join)
def test_a_route_answers_whose_session_may_and_nobody_else(scene: Scene, method: str, path: str) -> None:
    right, (own, other) = RIGHTS[method, path], scene.places.values()

    def status(role: Role, there: dict[str, UUID]) -> int:
        visitor = scene.visitors[role]
        if method == "GET":
            return visitor.get(right.url(there)).status_code
        answer = visitor.post(right.url(there), data=dict(right.form), headers=BY_SCRIPT)
        return answer.status_code

    for role in ROLES:
        assert status(role, own) == (right.status if role in right.roles else 403), role
        if right.outside:
            assert status(role, other) == right.outside, role
    stranger = scene.stranger
    sent = stranger.get(right.url(own)) if method == "GET" else stranger.post(right.url(own), data=dict(right.form))
    assert (sent.status_code, sent.headers["location"]) == (303, "/sign-in")


def test_every_answer_has_a_policy_that_lets_nothing_in_from_elsewhere(visit: Visits, client: Client) -> None:
    ann = visit.by("ann", "operator")
    story = client.create("story", "S-1")["id"]
    for path in ("/", "/instances", f"/instances/{story}", "/boards/story", "/tokens", "/nowhere", "/sign-in"):
        answer = ann.get(path)
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert (answer.headers["x-content-type-options"], answer.headers["referrer-policy"]) == (
            "nosniff",
            "no-referrer",
        )
        assert answer.headers["cache-control"] == "no-store"
        assert not re.search(r"\son[a-z]+=|\sstyle=|<script(?![^>]* src=)|<style", answer.text), path
        assert not re.search(r'(?:src|href|action)="(?:https?:)?//', answer.text), path


def test_static_files_are_kept_for_ever_under_the_url_of_their_content(visit: Visits) -> None:
    anybody = visit.anybody()
    files = [each.relative_to(FOLDER).as_posix() for each in FOLDER.rglob("*") if each.is_file()]
    assert "vendor/htmx.min.js" in files
    for each in files:
        answer = anybody.get(static_files.url(each), headers={"Accept-Encoding": "gzip"})
        assert answer.status_code == 200, each
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert answer.content == (FOLDER / each).read_bytes()
    assert anybody.get("/static/000000000000/console.css").status_code == 404
    assert anybody.get("/static/000000000000/../../app.py").status_code == 404


def test_what_a_page_loads_first_is_small(visit: Visits, client: Client) -> None:
    ann = visit.by("ann", "admin", None)
    encoded = {"Accept-Encoding": "gzip"}
    first = ann.get("/", headers=encoded)
    loaded = re.findall(r'(?:src|href)="(/static/[^"]+)"', first.text)
    sizes = [int(ann.get(each, headers=encoded).headers["content-length"]) for each in loaded]
    assert len(sizes) >= 6
    assert int(first.headers["content-length"]) + sum(sizes) < 100_000


def test_a_read_only_visitor_sees_reasons_instead_of_buttons(visit: Visits, client: Client) -> None:
    story = client.create("story", "S-1")["id"]
    bot = visit.by("bot", "read-only")
    page = bot.get(f"/instances/{story}").text
    assert 'data-command="design_complete"' not in page
    assert "your session is read-only" in page
    refused = bot.post(f"/instances/{story}/fire", data={"trigger": "design_complete"}, headers=BY_SCRIPT)
    assert (refused.status_code, "read-only" in refused.text) == (403, True)
    assert client.history(story) == []


def test_a_trigger_is_fired_in_the_visitors_name_and_says_what_became_of_it(visit: Visits, client: Client) -> None:
    story = client.create("story", "S-1")["id"]
    bot = visit.by("bot")
    page = bot.get(f"/instances/{story}").text
    assert 'data-command="design_complete"' in page
    form = {"trigger": "design_complete", "reason": "ready", "data": '{"note": "by hand"}', "if_version": "0"}
    fired = bot.post(f"/instances/{story}/fire", data=form, headers=BY_SCRIPT)
    assert (fired.status_code, fired.headers["hx-trigger"]) == (200, "changed")
    drain_all(client.runtime)
    (event,) = client.history(story)
    assert (event["triggered_by"], event["metadata"]["reason"], event["metadata"]["note"]) == (
        "bot",
        "ready",
        "by hand",
    )
    assert str(event["proof"]).startswith("token:")
    shown = bot.get(f"/instances/{story}").text
    assert "✓ verified" in shown
    assert "by hand" in shown


@pytest.mark.parametrize("data", ["{", "[]", "1", '{"a": NaN}'])
def test_data_that_is_no_object_is_refused(visit: Visits, client: Client, data: str) -> None:
    story = client.create("story", "S-1")["id"]
    refused = visit.by("bot").post(f"/instances/{story}/fire", data={"trigger": "block", "data": data})
    assert (refused.status_code, "data" in refused.text) == (422, True)


def test_an_illegal_move_says_state_and_legal_triggers(visit: Visits, client: Client) -> None:
    story = client.create("story", "S-1")["id"]
    refused = visit.by("bot").post(f"/instances/{story}/fire", data={"trigger": "no_such"}, headers=BY_SCRIPT)
    assert refused.status_code == 422
    assert "no_such" in refused.text


def test_hostile_names_are_shown_and_run_nothing(visit: Visits, client: Client) -> None:
    name = '<img src=x onerror="alert(1)">'
    story = client.create("story", name, context={"title": "</pre><script>alert(1)</script>\u202e"})["id"]
    bot = visit.by("bot")
    for path in ("/instances", f"/instances/{story}", "/boards/story"):
        page = bot.get(path).text
        assert "<img" not in page
        assert "<script>" not in page
        assert "\u202e" not in page
        assert "&lt;img" in page


def test_a_visitor_sees_nothing_of_other_projects(visit: Visits, client: Client) -> None:
    client.create("story", "S-secret", project="other")
    bot = visit.by("bot")
    for path in ("/", "/instances", "/boards/story", "/find?words=S-secret", "/tokens", "/tokens?all=true"):
        page = bot.get(path)
        assert "S-secret" not in page.text, path
        assert "other" not in re.sub(r"Other machines", "", page.text), path
    assert bot.get("/instances?project=other").status_code == 403


def test_links_to_what_is_in_another_project_are_not_shown(visit: Visits, client: Client) -> None:
    story = client.create("story", "S-1")["id"]
    for project in ("default", "other"):
        client.create("pr_review", f"PR-{project}", project=project, context={"author": "bob", "story_id": str(story)})
    page = visit.by("bot").get(f"/instances/{story}").text
    assert ("PR-default" in page, "PR-other" in page) == (True, False)
    assert "PR-other" in visit.by("ann", "operator", None).get(f"/instances/{story}").text


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/history?name=%00", 422),
        ("/history?by=a%00b", 422),
        ("/find?words=a%00b", 422),
        ("/stuck?type=a%00b", 422),
        ("/history?since=0001-01-01T00:00%2B23:59", 422),
        ("/history?until=9999-12-31T23:59-23:59", 422),
        ("/history?since=0001-01-01", 200),
        ("/history?until=9999-12-31T23:59", 200),
    ],
)
def test_whatever_an_address_says_is_answered_and_is_no_fault_of_ours(visit: Visits, path: str, status: int) -> None:
    assert visit.by("bot").get(path).status_code == status


def test_a_page_is_small_however_large_the_data_of_triggers_is(visit: Visits, client: Client) -> None:
    story = client.create("story", "S-1", context={"parts": ["<"] * 50_000})["id"]
    for trigger in ("block", "unblock") * 5:
        client.fire(story, trigger, by="bot", data={"reason": "<" * 10_000, "more": "<" * 240_000})
    drain_all(client.runtime)
    page = visit.by("bot").get(f"/instances/{story}").text
    assert "… the rest is left out" in page
    assert len(page) < 1_500_000  # of 2.7 MB of data, of which each character is printed as four


def test_a_history_that_is_too_long_for_a_page_is_said_to_be_unverified(
    visit: Visits, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    story, bot = client.create("story", "S-1")["id"], visit.by("bot")
    monkeypatch.setattr(instances, "VERIFIED", 1)
    for trigger, said in (("block", "✓ verified"), ("unblock", "not verified here")):
        client.fire(story, trigger, by="bot")
        drain_all(client.runtime)
        assert said in bot.get(f"/instances/{story}").text


def test_only_admins_see_the_tokens_of_others(visit: Visits, client: Client) -> None:
    theirs, own = place(client, "default")["token"], token(client.runtime, "bot")
    assert own
    for role in ROLES:
        page = visit.by(NAMES[role], role).get("/tokens").text
        assert (f"/instances/{theirs}" in page) == (role == "admin"), role
        assert f"{NAMES[role]}#" in page


def test_what_an_address_says_that_is_no_page_is_never_asked_for_again(visit: Visits) -> None:
    bot = visit.by("bot")
    for path in ("http://127.0.0.1:8080//evil.example/x", "/nothing"):
        page = bot.get(path)
        assert (page.status_code, "evil" in page.text, "hx-get" in page.text) == (404, False, False)


LISTS = [each for each in PAGES if each.path not in ("/boards", "/workers", "/tokens")]


def test_a_chosen_project_is_all_that_lists_show_and_every_link_keeps_it(visit: Visits, client: Client) -> None:
    for project in ("default", "other", "no-session"):
        story = client.create("story", f"S-{project}", project=project)["id"]
        client.fire(story, "block", by="bob")
    drain_all(client.runtime)
    bot, ann = visit.by("bot", "agent", ("default", "other")), visit.by("ann", "operator", None)
    for visitor in (bot, ann):
        for path in ("/boards/story", "/instances", "/history?name=S-default", "/find?words=S-"):
            mark = "&" if "?" in path else "?"
            assert "S-default" in visitor.get(path).text, path
            assert "S-default" in visitor.get(f"{path}{mark}project=").text, path
            narrowed = visitor.get(f"{path}{mark}project=other").text
            assert "S-default" not in narrowed.replace('value="S-default"', "").replace("name=S-default", ""), path
        page = visitor.get("/instances?type=story&project=other&state=blocked").text
        assert "S-other" in page
        menu, rest = page.split('id="projects"')[1].split("</details>", 1)
        assert 'href="/instances?type=story&amp;state=blocked&amp;project=default"' in menu
        assert '<input type="hidden" name="project" value="other">' in rest
        links = re.findall(r'href="(/(?!static/)[^"]*)"', rest)
        assert len(links) > len(PAGES)
        assert all("project=other" in each for each in links), links
        assert ("no-session" in menu) == (visitor is ann)
    moved = bot.get("/boards?project=other")
    assert (moved.status_code, moved.headers["location"].endswith("/boards/story?project=other")) == (303, True)
    assert 'id="projects"' not in visit.by("eve").get("/").text


def test_what_is_no_list_shows_all_and_its_menu_leads_to_the_overview(visit: Visits, client: Client) -> None:
    story = client.create("story", "S-1")["id"]
    client.create("story", "S-2", project="other")
    ann = visit.by("ann", "operator", None)
    for path in (f"/instances/{story}", "/workers", "/tokens"):
        page = ann.get(f"{path}?project=other")
        assert page.status_code == 200
        assert 'href="/?project=default"' in page.text, path
    whole, chosen = ann.get("/").text, ann.get("/?project=other").text
    assert ("Installation" in whole, "Installation" in chosen) == (True, False)


def test_a_project_that_is_not_of_the_session_is_refused_on_every_page(visit: Visits, client: Client) -> None:
    client.create("story", "S-secret", project="other")
    bot = visit.by("bot")
    for path in (*(each.path for each in PAGES), "/boards/story", "/find?words=S"):
        refused = bot.get(f"{path}{'&' if '?' in path else '?'}project=other")
        assert (refused.status_code, "S-secret" in refused.text) == (403, False), path
    assert bot.get("/runs?project=a%00b").status_code == 422


def test_each_list_of_the_navigation_can_be_narrowed(visit: Visits, client: Client) -> None:
    client.create("story", "S-1", project="other")
    bot = visit.by("bot", "agent", ("default", "other"))
    for each in LISTS:
        assert f'href="{each.path}?project=default"' in bot.get(f"{each.path}?project=other").text, each.path


def test_a_hostile_name_of_a_project_is_no_way_out_of_a_link(visit: Visits, client: Client) -> None:
    name = '"><img src=x>&project=default#'
    client.create("story", "S-1", project=name)
    page = visit.by("bot", "agent", ("default", name)).get("/instances", params={"project": name}).text
    assert "S-1" in page
    assert "<img" not in page
    assert 'href="/runs?project=%22%3E%3Cimg%20src%3Dx%3E%26project%3Ddefault%23"' in page
