"""Who was looked up a moment ago is not looked up again to fire; a revoked token gives no right all the same."""

from uuid import UUID

import pytest

from interlock.api import lately
from interlock.api.lately import Lately
from interlock.db.core import api_tokens
from interlock.workers.access.tokens import Principal, find
from interlock.workers.client.client import Client
from interlock.workers.overrides.tokens import revoke_tokens
from interlock.workers.overrides.transaction import OverrideOrder
from tests.calling import Calls, noted_sizes, token

pytestmark = pytest.mark.integration
FIRE = "/api/triggers?wait=0"
ORDER = OverrideOrder("ann", "a test")


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tokens each look-up was of."""
    return noted_sizes(monkeypatch, api_tokens, "find")


def fire(call: Calls, story: str, bearer: str, key: str, **more: object) -> int:
    body = {"instance": story, "trigger": "design_complete", "request_id": key} | more
    return call("POST", FIRE, json=body, token=bearer).status_code


def test_who_fires_again_is_not_looked_up_again(call: Calls, client: Client, looked_up: list[int]) -> None:
    stories = [str(client.create("story", f"S-{n}")["id"]) for n in range(5)]
    looked_up.clear()
    assert [fire(call, each, call.token, f"k{n}") for n, each in enumerate(stories)] == [202] * 5
    assert len(looked_up) <= 1


def test_after_a_while_it_is(
    call: Calls, client: Client, looked_up: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lately, "LATELY_SECONDS", 0.0)
    story = str(client.create("story", "S-1")["id"])
    looked_up.clear()
    assert [fire(call, story, call.token, key) for key in ("a", "b")] == [202, 202]
    assert len(looked_up) == 2


ASKED: dict[str, dict[str, object]] = {
    "a new trigger": {"request_id": "new"},
    "one that it fired before": {"request_id": "before"},
    "the key of one, with another body": {"request_id": "before", "data": {"n": 1}},
    "one that there is not": {"trigger": "no such trigger"},
    "an instance that there is not": {"instance": "S-9"},
    "an instance of another project": {"instance": "story/S-2", "project": "other"},
    "what is not open to it": {"trigger": "done", "proof": "claim:7"},
    "wrong data": {"data": {"spent": "much"}},
    "later": {"after_seconds": 60},
}


@pytest.mark.parametrize("asked", ASKED)
def test_a_revoked_token_that_was_looked_up_a_moment_ago_is_told_nothing(
    call: Calls, client: Client, looked_up: list[int], asked: str
) -> None:
    story = str(client.create("story", "S-1")["id"])
    client.create("story", "S-2", project="other")
    bearer = token(client.runtime, "gone")
    assert fire(call, story, bearer, "before") == 202
    principal = find(client.runtime, bearer)
    assert principal is not None
    revoke_tokens(client.runtime, str(principal.token_id), ORDER)
    looked_up.clear()
    body = {"instance": story, "trigger": "design_complete", "request_id": "new"} | ASKED[asked]
    never = call("POST", FIRE, json=body, token="ilk_" + "A" * 43)
    looked_up.clear()
    answer = call("POST", FIRE, json=body, token=bearer)
    assert looked_up == [], "it was known"
    assert (answer.status_code, answer.json()) == (401, never.json())
    with client.runtime.statements.connect() as connection:
        accepted = connection.exec_driver_sql(
            "SELECT request_id FROM interlock.trigger_requests WHERE workflow_id = %s", (UUID(story),)
        )
        assert accepted.scalars().all() == ["before"]


def test_a_revoked_token_over_its_rate_is_told_nothing(call: Calls, client: Client) -> None:
    story = str(client.create("story", "S-1")["id"])
    bearer = token(client.runtime, "gone")
    assert fire(call, story, bearer, "before") == 202
    principal = find(client.runtime, bearer)
    assert principal is not None
    revoke_tokens(client.runtime, str(principal.token_id), ORDER)
    rates = call.app.state.access.rates
    rates._per_second = 0.001
    while not rates.wait_seconds(principal.token_id):
        pass
    assert fire(call, story, bearer, "new") == 401


def test_only_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lately, "MOST", 2)
    remembered = Lately()
    someone: Principal = object()  # type: ignore[assignment] # nobody looks at it
    for each in "abc":
        remembered.note(each, someone)
    assert [remembered.of(each) for each in "abc"] == [None, someone, someone]
