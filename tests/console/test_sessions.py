"""Sessions of the console: a link is used once, a cookie is bounded, and other sites' pages do nothing with it."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from interlock.console.pages import instances
from interlock.workers.access import tokens
from interlock.workers.client.client import Client
from interlock.workers.overrides.console_sessions import make_link
from interlock.workers.overrides.operators import revoke
from interlock.workers.overrides.tokens import TokenTerms, list_tokens, revoke_tokens
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workflows.machines.governance.api_token import Role
from tests.calling import bearing, token
from tests.driving import drain_all
from tests.rights import operate
from tests.visiting import OURS, Visits, link
from tests.waiting import eventually

pytestmark = pytest.mark.integration


def test_a_link_opens_one_session(visit: Visits, client: Client) -> None:
    secret, ann = link(client.runtime, "ann", "operator"), visit.anybody()
    first = ann.post("/sign-in", data={"link": secret})
    assert (first.status_code, first.headers["location"]) == (303, "/")
    again = visit.anybody().post("/sign-in", data={"link": secret})
    assert (again.status_code, "has been used" in again.text, again.cookies) == (401, True, {})
    assert ann.get("/").status_code == 200
    (session,) = list_tokens(client.runtime)
    assert (session["name"], session["role"], session["issued_by"]) == ("ann", "operator", "ann")
    assert session["expires_at"] is not None
    ended = [each for each in list_tokens(client.runtime, ended=True) if each["state"] == "revoked"]
    assert [each["reason"] for each in ended] == ["a test"]


def test_a_link_that_is_presented_several_times_at_once_opens_one_session(visit: Visits, client: Client) -> None:
    secret, everybody = link(client.runtime, "bot"), [visit.anybody() for _ in range(4)]

    async def at_once() -> list[int]:
        sent = [each.client.post("/sign-in", data={"link": secret}, headers=OURS) for each in everybody]
        return sorted(each.status_code for each in await asyncio.gather(*sent))

    assert visit.run(at_once()) == [303, 401, 401, 401]
    assert len([each for each in list_tokens(client.runtime) if each["name"] == "bot"]) == 1


def test_the_cookie_is_out_of_reach_and_ends(visit: Visits, client: Client) -> None:
    signed = visit.anybody().post("/sign-in", data={"link": link(client.runtime, "ann", "operator")})
    (cookie,) = signed.headers.get_list("set-cookie")
    name, _, rest = cookie.partition("=")
    assert name == "interlock-8080"
    assert "HttpOnly" in rest
    assert "SameSite=strict" in rest
    assert "Max-Age=43200" in rest
    assert "Secure" not in rest  # plain HTTP on loopback
    over_tls = {"Origin": "https://127.0.0.1:8080"}
    again = visit.anybody().post("/sign-in", data={"link": link(client.runtime, "ann", "operator")}, headers=over_tls)
    assert "Secure" in again.headers["set-cookie"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (OURS, 200),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Origin": "http://127.0.0.1:8080"}, 200),
        ({}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://["}, 403),
        ({"Origin": "127.0.0.1:8080"}, 403),
        ({"Origin": "http://127.0.0.1:8081"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:8080"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "none"}, 403),
    ],
    ids=str,
)
def test_only_our_own_pages_post(visit: Visits, client: Client, headers: dict[str, str], status: int) -> None:
    story = client.create("story", "S-1")["id"]
    visitor = visit.by("bot")
    sent = visitor.send("POST", f"/instances/{story}/fire", headers, data={"trigger": "block"})
    assert sent.status_code == status
    drain_all(client.runtime)
    assert len(client.history(story)) == (status == 200)
    secret = link(client.runtime, "bot")
    assert visit.anybody().send("POST", "/sign-in", headers, data={"link": secret}).status_code == (
        303 if status == 200 else 403
    )


def test_the_api_reads_with_the_cookie_for_our_pages_and_writes_never(visit: Visits, client: Client) -> None:
    visitor = visit.by("bot")
    client.create("story", "S-1")
    assert visitor.get("/api/instances").status_code == 200
    assert visitor.send("GET", "/api/instances", {"Sec-Fetch-Site": "cross-site"}).status_code == 401
    assert visitor.send("GET", "/api/instances", {"Authorization": "Bearer x"}).status_code == 401
    order = {"instance": "S-1", "trigger": "block"}
    assert visitor.send("POST", "/api/triggers", OURS, json=order).status_code == 401


def test_a_link_is_no_session_and_no_bearer_token_nor_the_other_way(visit: Visits, client: Client) -> None:
    secret = link(client.runtime, "bot")
    visitor = visit.by("bot")
    (session,) = visitor.client.cookies.values()
    bearer = token(client.runtime, "bot")
    assert [each[:4] for each in (secret, session, bearer)] == [tokens.LINK, tokens.SESSION, tokens.BEARER]
    for each in (secret, session):
        assert visitor.send("GET", "/api/instances", bearing(each)).status_code == 401
    for each in (session, bearer):
        assert visit.anybody().post("/sign-in", data={"link": each}).status_code == 401
    for each in (secret, bearer):
        cookie = {"Cookie": f"interlock-8080={each}"}
        assert visit.anybody().send("GET", "/", cookie).status_code == 303


def test_signing_out_ends_the_session_for_whoever_has_its_cookie(visit: Visits, client: Client) -> None:
    for role in ("read-only", "agent"):
        visitor, thief = visit.by("bot", role), visit.anybody()
        thief.client.cookies.update(visitor.client.cookies)
        assert thief.get("/").status_code == 200
        out = visitor.post("/sign-out")
        assert (out.status_code, out.headers["location"]) == (303, "/sign-in")
        assert thief.get("/").status_code == 303
    ended = {each["reason"]: each["ended_by"] for each in list_tokens(client.runtime, ended=True)}
    assert "ann" in ended.values()
    assert not [each for each in list_tokens(client.runtime) if each["name"] == "bot"]


def test_a_link_of_whoever_is_an_operator_no_longer_opens_nothing(visit: Visits, client: Client) -> None:
    operate(client.runtime, "bea")
    secret = make_link(client.runtime, TokenTerms("bot", "agent", None), OverrideOrder("bea", "a test")).token
    revoke(client.runtime, "bea", by="ann", reason="a test")
    refused = visit.anybody().post("/sign-in", data={"link": secret})
    assert (refused.status_code, "set-cookie" in refused.headers) == (403, False)


def test_a_session_that_ends_while_its_trigger_is_waited_for_is_told_nothing(
    visit: Visits, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instances, "WAIT_SECONDS", 1.0)
    story, visitor = client.create("story", "S-1")["id"], visit.by("bot")
    (session,) = list_tokens(client.runtime)

    with ThreadPoolExecutor() as thread:
        fired = thread.submit(visitor.post, f"/instances/{story}/fire", data={"trigger": "block"})
        eventually(lambda: client.show(story)["requests"])
        revoke_tokens(client.runtime, str(session["token_id"]), OverrideOrder("ann", "a test"))
        answer = fired.result()
    assert (answer.status_code, answer.headers.get("location")) == (303, "/sign-in")


def test_a_session_that_ends_before_what_it_posts_is_accepted_is_told_nothing(
    visit: Visits, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    story, access = client.create("story", "S-1")["id"], visit.site.api.state.access
    token(client.runtime, "cyd")
    ((theirs, look_up),) = [(each["token_id"], access.tokens.ask) for each in list_tokens(client.runtime)]

    async def ask(asked: tuple[str, str]) -> tokens.Principal | None:
        found: tokens.Principal | None = await look_up(asked)
        assert found is not None
        ended = OverrideOrder("ann", "a test")
        await asyncio.to_thread(revoke_tokens, client.runtime, str(found.token_id), ended)
        return found

    posts: list[tuple[str, Role, str, dict[str, str]]] = [
        ("bot", "agent", f"/instances/{story}/fire", {"trigger": "block"}),
        ("ann", "admin", f"/tokens/{theirs}/revoke", {}),
    ]
    for name, role, path, form in posts:
        for headers, status, where in (({}, 303, "location"), ({"HX-Request": "true"}, 401, "hx-redirect")):
            visitor = visit.by(name, role)
            with monkeypatch.context() as patched:
                patched.setattr(access.tokens, "ask", ask)
                answer = visitor.post(path, data=form | {"reason": "a test"}, headers=headers)
            assert (answer.status_code, answer.headers.get(where)) == (status, "/sign-in"), (path, answer.text)
    drain_all(client.runtime)
    assert client.history(story) == []
    assert [each["name"] for each in list_tokens(client.runtime)] == ["cyd"]


def test_signing_out_works_although_whoever_let_one_in_is_an_operator_no_longer(visit: Visits, client: Client) -> None:
    operate(client.runtime, "bea")
    visitors = {}
    for role in ("agent", "read-only"):
        terms = TokenTerms("bot", role, ("default",))
        secret = make_link(client.runtime, terms, OverrideOrder("bea", "a test")).token
        visitors[role] = visit.anybody().sign_in(secret)
    revoke(client.runtime, "bea", by="ann", reason="a test")
    for role, visitor in visitors.items():
        assert visitor.get("/").status_code == 200, role
        out = visitor.post("/sign-out")
        assert (out.status_code, out.headers["location"]) == (303, "/sign-in"), role
        assert not visitor.client.cookies, role
    assert {each["role"] for each in list_tokens(client.runtime) if each["name"] == "bot"} <= {"read-only"}
