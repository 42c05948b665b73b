"""API tokens: issued and revoked by events, found by their secret alone, and said by whatever is done with them."""

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from time import perf_counter
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.errors import RestrictViolation
from sqlalchemy.util import greenlet_spawn

from interlock.db.audit import verify
from interlock.workers.access import tokens
from interlock.workers.access.tokens import Principal, find
from interlock.workers.client.async_client import AsyncClient, AsyncRuntime, acting_async
from interlock.workers.client.client import Client
from interlock.workers.client.operations import acting
from interlock.workers.engine.trigger_request import Firing
from interlock.workers.overrides.at_once import CannotMove
from interlock.workers.overrides.tokens import NoSuchToken, TokenTerms, issue, list_tokens, revoke_tokens
from interlock.workers.overrides.transaction import NotAnOperator, OverrideOrder, operating
from interlock.workers.runtime import Runtime
from interlock.workers.schedules.creating import create_schedule, firing, standing
from interlock.workers.schedules.firing import fire_due
from interlock.workers.settings import Settings
from interlock.workflows.errors import BadInput, NotYours
from interlock.workflows.machines.governance.api_token import Role
from tests import databases
from tests.collector import Collector
from tests.driving import drain_all, make_due, outcome, state, swept
from tests.rights import grant
from tests.scheduling import SECONDLY
from tests.tampering import forge, unprotected
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ann")]
Dba = psycopg.Connection[Any]
WHY = OverrideOrder("ann", "a test")


def token(runtime: Runtime, role: Role = "agent", *projects: str, name: str = "bot") -> str:
    return issue(runtime, TokenTerms(name, role, projects or None), WHY).token


def principal(runtime: Runtime, role: Role = "agent", *projects: str, name: str = "bot") -> Principal:
    found = find(runtime, token(runtime, role, *projects, name=name))
    assert found
    return found


def held(client: Client, role: Role = "agent", *projects: str, name: str = "bot") -> Client:
    """The client, as the holder of a new token has it."""
    made = acting(client, principal(client.runtime, role, *projects, name=name))
    assert isinstance(made, Client)
    return made


def test_a_token_is_shown_once_found_by_its_secret_and_gone_with_its_revocation(runtime: Runtime) -> None:
    until = datetime.now(UTC) + timedelta(days=30)
    issued = issue(runtime, TokenTerms("bot", "agent", ("P", "P", "Q"), until), WHY)
    assert tokens.FORM.fullmatch(issued.token)
    found = find(runtime, issued.token)
    assert found == Principal(issued.row["token_id"], "bot", "agent", frozenset({"P", "Q"}))
    assert (found.may_read("P"), found.may_write("Q"), found.may_read("R")) == (True, True, False)
    (row,) = list_tokens(runtime, project="Q")
    assert row == issued.row | {"last_used_at": row["last_used_at"]}
    assert row["last_used_at"] is not None
    assert (row["issued_by"], row["reason"], row["expires_at"], row["state"]) == ("ann", "a test", until, "active")
    assert [each["ended_by"] for each in revoke_tokens(runtime, "bot", WHY)] == ["ann"]
    assert find(runtime, issued.token) is None
    assert list_tokens(runtime) == []
    events = Client(runtime).history(row["token_id"])
    assert [(each["trigger"], each["authority"], each["triggered_by"]) for each in events] == [
        ("issue", "operator", "ann"),
        ("revoke", "operator", "ann"),
    ]
    assert events[0]["metadata"]["terms"] == {
        "name": "bot",
        "role": "agent",
        "projects": ["P", "Q"],
        "expires_at": until.isoformat(),
    }
    assert verify.verify(runtime.database).ok


def test_a_token_expires_by_its_time_and_then_by_its_event(runtime: Runtime, client: Client, dba: Dba) -> None:
    issued = issue(runtime, TokenTerms("bot", "agent", None, datetime.now(UTC) + timedelta(hours=1)), WHY)
    with unprotected(dba, "api_tokens"):
        dba.execute("UPDATE api_tokens SET expires_at = now()")
    assert find(runtime, issued.token) is None
    assert [each["state"] for each in list_tokens(runtime, ended=True)] == ["expired"]
    with pytest.raises(NoSuchToken):
        revoke_tokens(runtime, "bot", WHY)
    with unprotected(dba, "workflow_instances", "api_tokens"):  # as if it had been issued for as long
        dba.execute(
            "UPDATE workflow_instances i SET context = context || jsonb_build_object('expires_at', t.expires_at)"
            " FROM api_tokens t WHERE t.token_id = i.id"
        )
    make_due(dba)
    swept(runtime, "dispatch")
    drain_all(runtime)
    assert state(client, issued.row["token_id"]) == "expired"


@pytest.mark.parametrize(
    ("terms", "refusal", "said"),
    [
        (TokenTerms("ann", "agent", None), CannotMove, "ann is an operator"),
        (TokenTerms("ann", "read-only", None), CannotMove, "ann is an operator"),
        (TokenTerms("bot", "operator", None), CannotMove, "bot is not an operator"),
        (TokenTerms("bot", "admin", None), CannotMove, "bot is not an operator"),
        (TokenTerms("bot", "agent", None, datetime(2020, 1, 1, tzinfo=UTC)), CannotMove, "it would have expired"),
    ],
)
def test_what_is_no_token_is_not_issued(
    runtime: Runtime, dba: Dba, terms: TokenTerms, refusal: type[Exception], said: str
) -> None:
    before = databases.whole(dba)
    with pytest.raises(refusal, match=said):
        issue(runtime, terms, WHY)
    assert databases.whole(dba) == before


def test_only_operators_issue_and_revoke(runtime: Runtime) -> None:
    bot = OverrideOrder("bot", "mine")
    with pytest.raises(NotAnOperator):
        issue(runtime, TokenTerms("bot", "agent", None), bot)
    token(runtime)
    with pytest.raises(NotAnOperator):
        revoke_tokens(runtime, "bot", bot)
    for wrong in (
        {"role": "root"},
        {"projects": ()},
        {"name": "b\tt"},
        {"expires_at": datetime(2030, 1, 1)},
        {"expires_at": datetime(9999, 1, 1, tzinfo=UTC)},
    ):
        with pytest.raises(BadInput):
            TokenTerms(**{"name": "bot", "role": "agent", "projects": None, **wrong})  # type: ignore[arg-type]


def test_what_is_done_with_a_token_says_so(client: Client, project: str) -> None:
    bot = held(client, "agent", project)
    story = bot.create("story", "S-1", by="bot")
    proof = story["born_proof"]
    one = bot.fire("S-1", "design_complete", by="bot")
    bot.fire_many([Firing("S-1", "start_coding", "bot"), Firing("S-1", "submit_pr", "bot")])
    drain_all(client.runtime)
    assert proof == bot._principal.proof() if bot._principal else None
    assert [(each["triggered_by"], each["proof"]) for each in client.history("S-1")] == [("bot", proof)] * 3
    assert bot.wait([one.request_id])[0].status == "applied"
    assert bot.fire("S-1", "design_complete", by="bot", request_id=one.request_id).request_id == one.request_id
    assert verify.verify(client.runtime.database).ok


def test_what_a_token_does_not_allow_is_refused_and_recorded(client: Client, project: str) -> None:
    story = client.create("story", "S-1")["id"]
    refused: list[tuple[Client, Callable[[Client], object], str]] = [
        (held(client, "read-only"), lambda bot: bot.fire(story, "block", by="bot"), "is read-only"),
        (held(client, "read-only"), lambda bot: bot.create("story", "S-2", by="bot"), "is read-only"),
        (held(client, "agent", "another"), lambda bot: bot.fire(story, "block", by="bot"), "of other projects"),
        (held(client, "agent", "another"), lambda bot: bot.create("story", "S-2", by="bot"), "of other projects"),
        (held(client), lambda bot: bot.fire(story, "block", by="ann"), "is of bot"),
        (held(client), lambda bot: bot.create("story", "S-2", by="ann"), "is of bot"),
        (held(client), lambda bot: bot.create("run", "R-2", by="bot"), "is no operator's"),
        (
            held(client, "agent", "another"),
            lambda bot: bot.create("pr_review", "PR-1", project="another", by="bot", context={"story_id": str(story)}),
            "of other projects",
        ),
    ]
    for bot, attempt, said in refused:
        with pytest.raises(NotYours, match=said):
            attempt(bot)
    drain_all(client.runtime)
    recorded = [each["metadata"]["reason"] for each in client.history("refusal_log/interlock_engine")]
    assert len(recorded) >= 3
    assert client.show(story)["version"] == 0


def test_an_operators_token_acts_as_the_operator_with_a_reason(client: Client) -> None:
    limit = client.create("limit", "L-1", context={"kind": "key", "name": "k", "at_once": 1})["id"]
    ann = held(client, "operator", name="ann")
    with pytest.raises(NotYours, match="no reason"):
        ann.fire(limit, "remove", by="ann")
    ann.fire(limit, "remove", by="ann", data={"reason": "over"})
    drain_all(client.runtime)
    (event,) = client.history(limit)
    granted, by_token = str(event["proof"]).split(" ")
    assert granted.startswith("grant:")
    assert by_token.startswith("token:")
    assert verify.verify(client.runtime.database).ok


def test_what_an_approval_lets_go_still_says_by_which_token(client: Client) -> None:
    bot = held(client)
    sprint = bot.create("sprint", "P-1", by="bot")["id"]
    asked = bot.fire(sprint, "start", by="bot")
    drain_all(client.runtime)
    approval = outcome(client, asked.request_id)["held_by"]
    other = held(client, name="cyd")
    other.fire(approval, "approve", by="cyd")
    drain_all(client.runtime)
    assert outcome(client, asked.request_id)["status"] == "applied"
    (event,) = client.history(sprint)
    assert event["proof"] == f"approval:{approval} {bot.show(sprint)['born_proof']}"
    assert verify.verify(client.runtime.database).ok


def test_what_is_not_due_yet_falls_with_the_tokens_revocation(client: Client, dba: Dba) -> None:
    story = client.create("story", "S-1")["id"]
    waiting = held(client).fire(story, "block", by="bot", after=timedelta(hours=1))
    kept = client.fire(story, "design_complete", by="bot", after=timedelta(hours=1))
    revoke_tokens(client.runtime, "bot", WHY)
    make_due(dba)
    swept(client.runtime, "dispatch")
    drain_all(client.runtime)
    assert outcome(client, waiting.request_id)["result"]["code"] == "token_revoked"
    assert outcome(client, kept.request_id)["status"] == "applied"


def test_a_schedule_acts_with_the_token_that_it_was_created_with(client: Client, dba: Dba) -> None:
    bot = held(client)
    story = client.create("story", "S-1")["id"]
    fires = create_schedule(bot, "fires", SECONDLY, firing(bot, story, "design_complete"), by="bot")
    makes = create_schedule(bot, "makes", SECONDLY, {"create": {"type": "story", "name": "M-%due"}}, by="bot")
    with pytest.raises(NotYours, match="is no operator's"):
        create_schedule(bot, "engine", SECONDLY, {"create": {"type": "run", "name": "R-%due"}}, by="bot")
    eventually(lambda: fire_due(client.runtime) >= 2, timeout=20)
    drain_all(client.runtime)
    assert client.history(story)[0]["proof"] == f"schedule:{fires['id']} {fires['born_proof']}"
    made = dba.execute("SELECT born_proof FROM workflow_instances WHERE entity_id LIKE 'M-%'").fetchall()
    assert set(made) == {(makes["born_proof"],)}
    revoke_tokens(client.runtime, "bot", WHY)

    def failing() -> bool:
        fire_due(client.runtime)
        drain_all(client.runtime)
        return all(standing(client, each["id"]).row["failed_at"] for each in (fires, makes))

    eventually(failing, timeout=20)
    for each in (fires, makes):
        assert "is revoked" in client.history(each["id"])[-1]["metadata"]["reason"]
    assert verify.verify(client.runtime.database).ok


def test_the_use_is_noted_once_a_minute(runtime: Runtime, dba: Dba) -> None:
    issued = token(runtime)
    for _ in range(3):
        assert find(runtime, issued)
    (((noted, version),)) = dba.execute("SELECT last_used_at, xmin::text FROM api_token_uses").fetchall()
    dba.execute("UPDATE api_token_uses SET last_used_at = last_used_at - interval '61 s'")
    assert find(runtime, issued)
    (((again, newer),)) = dba.execute("SELECT last_used_at, xmin::text FROM api_token_uses").fetchall()
    assert again > noted
    assert version != newer


def test_whatever_is_presented_in_vain_costs_the_same(runtime: Runtime) -> None:
    revoked = token(runtime)
    revoke_tokens(runtime, "bot", WHY)
    vain = ["", "x", revoked[:-1], revoked, tokens.make(), "ilk_" + "\N{SNOWMAN}" * 43, "x" * 10_000_000]
    took: dict[str, list[float]] = {each: [] for each in vain}
    for _ in range(60):
        for each in vain:
            began = perf_counter()
            assert find(runtime, each) is None
            took[each].append(perf_counter() - began)
    least = sorted(min(each) for each in took.values())  # what others of this machine take is not in it
    assert least[-1] < 1.5 * least[0], least


def test_a_token_stands_in_nothing_that_is_kept_or_said(
    client: Client, dba: Dba, collecting: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    issued = issue(client.runtime, TokenTerms("bot", "agent", None), WHY)
    found = find(client.runtime, issued.token)
    assert found
    bot = acting(client, found)
    story = bot.create("story", "S-1", by="bot")["id"]
    bot.fire(story, "design_complete", by="bot")
    drain_all(client.runtime)
    said: list[object] = []
    for attempt in (
        lambda: bot.fire(story, "block", by="ann"),
        lambda: bot.fire(story, issued.token[:20], by="bot"),
        lambda: revoke_tokens(client.runtime, "nobody", WHY),
    ):
        with pytest.raises(Exception) as error:  # noqa: PT011 - each says something else
            attempt()
        said += [str(error.value), repr(error.value)]
    secret = issued.token[24:]
    kept = json.dumps([databases.whole(dba), [dict(each) for each in client.history(story)]], default=str)
    for each in (
        kept,
        caplog.text,
        repr(issued),
        repr(found),
        str(list_tokens(client.runtime)),
        str(said),
        str(vars(collecting)),
    ):
        assert secret not in each


def test_a_row_is_what_its_history_says_and_nothing_else(runtime: Runtime, client: Client, dba: Dba) -> None:
    bot = held(client)
    story = bot.create("story", "S-1", by="bot")["id"]
    bot.fire(story, "design_complete", by="bot")
    drain_all(runtime)
    for change in (
        "role = 'admin'",
        "name = 'ann'",
        "projects = '{P}'",
        "secret_sha256 = sha256('mine')",
        "expires_at = now()",
    ):
        with pytest.raises(RestrictViolation, match="differ from its history"):
            dba.execute(f"UPDATE api_tokens SET {change}")
    assert verify.verify(runtime.database).ok
    with unprotected(dba, "api_tokens"):
        dba.execute("UPDATE api_tokens SET role = 'read-only'")
    messages = " ".join(each.message for each in verify.verify(runtime.database).problems)
    assert "api_tokens says" in messages
    assert "no such token was in force" in messages
    with unprotected(dba, "api_tokens"):
        dba.execute("UPDATE api_tokens SET role = 'agent'")
    assert verify.verify(runtime.database).ok
    other = UUID(int=7)
    forge(dba, story, 1, "proof", f"token:{other}")
    (problem,) = verify.verify(runtime.database).problems
    assert f"its proof token:{other} is none" in problem.message


def test_an_asynchronous_client_acts_with_a_token_and_stays_what_it_is(client: Client, settings: Settings) -> None:
    bearer = token(client.runtime)

    async def steps() -> None:
        async with AsyncClient(AsyncRuntime(settings)) as plain:
            found = await greenlet_spawn(find, plain.runtime, bearer)
            assert found
            bot = acting_async(plain, found)
            await bot.create("story", "S-1", by="bot")
            await bot.fire("S-1", "design_complete", by="bot")
            with pytest.raises(NotYours, match="is of bot"):
                await bot.fire("S-1", "block", by="ann")
            await plain.fire("S-1", "start_coding", by="ann")

    asyncio.run(steps())
    drain_all(client.runtime)
    proofs = [each["proof"] for each in client.history("S-1")]
    assert proofs == [client.show("S-1")["born_proof"], None]


def test_an_admins_token_issues_and_revokes_what_it_covers_and_each_its_own(client: Client) -> None:
    runtime = client.runtime
    grant(client, "cyd")
    admin = OverrideOrder("cyd", "a test", principal=principal(runtime, "admin", "P", "Q", name="cyd"))
    for role, projects in (("agent", None), ("agent", ("R",)), ("agent", ("P", "R"))):
        with pytest.raises(NotYours, match="of other projects"):
            issue(runtime, TokenTerms("bot", role, projects), admin)  # type: ignore[arg-type]
    made = issue(runtime, TokenTerms("bot", "agent", ("P",)), admin)
    (event,) = client.history(made.row["token_id"])
    assert str(event["proof"]).endswith(f" token:{admin.principal and admin.principal.token_id}")
    assert (event["authority"], made.row["issued_by"]) == ("operator", "cyd")
    elsewhere = issue(runtime, TokenTerms("eve", "agent", ("R",)), WHY)
    with pytest.raises(NotYours, match="of other projects"):
        revoke_tokens(runtime, "eve", admin)
    operator = OverrideOrder("ann", "a test", principal=principal(runtime, "operator", name="ann"))
    with pytest.raises(NotYours, match="is no admin's"):
        revoke_tokens(runtime, "eve", operator)
    own = find(runtime, elsewhere.token)
    assert own
    second = token(runtime, "agent", "R", name="eve")
    revoke_tokens(runtime, "eve", OverrideOrder("eve", "it leaked", principal=own))
    assert (find(runtime, elsewhere.token), find(runtime, second)) == (None, None)
    assert client.history(own.token_id)[-1]["authority"] == "holder"
    revoke_tokens(runtime, "bot", admin)
    assert verify.verify(runtime.database).ok


def test_no_token_outlasts_the_admins_token_that_it_is_issued_with(client: Client) -> None:
    runtime = client.runtime
    grant(client, "cyd")
    until = datetime.now(UTC) + timedelta(days=30)
    own = find(runtime, issue(runtime, TokenTerms("cyd", "admin", None, until), WHY).token)
    admin = OverrideOrder("cyd", "a test", principal=own)
    for later in (None, until + timedelta(seconds=1)):
        with pytest.raises(NotYours, match="ends before it"):
            issue(runtime, TokenTerms("bot", "agent", ("P",), later), admin)
    for name, end in (("bot", until), ("eve", until - timedelta(days=1))):
        assert issue(runtime, TokenTerms(name, "agent", None, end), admin).row["expires_at"] == end
    assert {each["name"] for each in list_tokens(runtime)} == {"cyd", "bot", "eve"}


def test_an_override_says_by_which_token_it_was_asked_for(client: Client, project: str) -> None:
    story = client.create("story", "S-1")["id"]
    order = OverrideOrder("ann", "a test", principal=principal(client.runtime, "operator", project, name="ann"))
    with operating(client.runtime, order, "force", story) as operation:
        operation.walk(operation.find(story), "design")
    other = replace(order, principal=principal(client.runtime, "operator", "another", name="ann"))
    with (
        pytest.raises(NotYours, match="of other projects"),
        operating(client.runtime, other, "force", story) as operation,
    ):
        operation.walk(operation.find(story), "implementation")
    (event,) = client.history(story)
    assert str(event["proof"]).startswith("grant:")
    assert str(event["proof"]).endswith(str(order.proof))
    assert verify.verify(client.runtime.database).ok
