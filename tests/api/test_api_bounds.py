"""What out of bounds is, is refused before it is looked at, as a problem; and the log knows no secret."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from time import process_time
from uuid import uuid4

import pytest
from fastapi import APIRouter

from interlock.api import bounds
from interlock.api.access import Called
from interlock.api.groups import RouteGroup
from interlock.api.problems import JsonAnswer
from interlock.api.rates import Rates
from interlock.workers.client.client import Client
from interlock.workers.settings import Settings
from tests.calling import Calls, calls, token

pytestmark = pytest.mark.integration


def deep(levels: int) -> bytes:
    return b'{"instance": "S-1", "trigger": "block", "data": ' + b'{"a":' * levels + b"1" + b"}" * levels + b"}"


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        (b"{", 400, "unreadable"),
        (b"\xff\xfe", 400, "unreadable"),
        (b"[" * 100_000, 400, "unreadable"),
        (deep(60), 422, "invalid"),
        (deep(51), 422, "invalid"),
        (b'{"instance": "S-1", "trigger": "block", "data": {"n": ' + b"9" * 5_000 + b"}}", 400, "unreadable"),
        (b'{"instance": "S-1", "trigger": "block", "data": {"n": NaN}}', 422, "invalid"),
        (b'"' + b"x" * bounds.BODY_BYTES + b'"', 413, "too-large"),
    ],
    ids=["cut", "no UTF-8", "open", "deep", "a level too deep", "a long number", "no number", "large"],
)
def test_a_body_out_of_bounds_is_a_problem(call: Calls, client: Client, body: bytes, status: int, kind: str) -> None:
    client.create("story", "S-1")
    refused = call("POST", "/api/triggers?wait=0", content=body, headers={"Content-Type": "application/json"})
    assert (refused.status_code, refused.json()["type"]) == (status, f"urn:interlock:problem:{kind}")


def test_a_body_without_length_is_counted_and_a_slow_one_is_given_up(
    call: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def large() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield b" " * 2**20

    assert call("POST", "/api/triggers", content=large()).status_code == 413

    async def endless() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    monkeypatch.setattr(bounds, "BODY_SECONDS", 0.05)
    assert call("POST", "/api/triggers", content=endless()).status_code == 408


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", ""])
def test_another_host_is_refused(call: Calls, host: str) -> None:
    assert call("GET", "/api/health", headers={"Host": host}).status_code == 421


def test_what_is_no_route_is_a_problem(call: Calls) -> None:
    for method, path, status in (("GET", "/", 404), ("GET", "/api/nothing", 404), ("DELETE", "/api/instances", 405)):
        answer = call(method, path)
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")


def test_a_path_with_a_line_break_is_refused(call: Calls, client: Client) -> None:
    client.create("story", "S-1")
    for path in ("/api/instances/S-1%0A", "/api/instances/S%0A-1", "/api/diagrams/%0A", "/api/health%0A"):
        answer = call("GET", path)
        assert (answer.status_code, "line break" in answer.json()["detail"]) == (400, True), path


def test_who_is_wrong_many_times_is_told_of_a_few_and_holds_nobody_up(call: Calls) -> None:
    wrong = {"trigger": "k" * 1_000, "wrong": 1}
    refused = call("POST", "/api/triggers/batch", json={"triggers": [wrong] * 1_000})
    assert (refused.status_code, len(refused.json()["errors"])) == (422, 20)
    assert len(refused.content) < 20_000
    many = {f"k{number}": 1 for number in range(200_000)}

    def spent() -> float:
        began = process_time()
        refused = call("POST", "/api/triggers", json=many)
        assert (refused.status_code, "200,000 members" in refused.json()["detail"]) == (422, True)
        return process_time() - began

    assert min(spent() for _ in range(3)) < 1.0  # others on a busy machine make it longer, never shorter


def test_a_request_with_two_lengths_is_refused(call: Calls) -> None:
    both = {"Content-Length": "2", "Transfer-Encoding": "chunked"}
    refused = call("POST", "/api/triggers", content=b"{}", headers=both)
    assert (refused.status_code, refused.headers["connection"]) == (400, "close")


def test_a_form_in_place_of_json_is_told_which_header_it_needs(call: Calls) -> None:
    refused = call("POST", "/api/triggers", data={"instance": "S-1"})
    assert (refused.status_code, "Content-Type: application/json" in refused.json()["detail"]) == (422, True)


@pytest.fixture
def few(settings: Settings, client: Client, ann: None) -> Iterator[Calls]:
    """The API with one request in a thousand seconds for each token."""
    with calls(settings.model_copy(update={"api_rate": 0.001})) as made:
        made.token = token(client.runtime, "agent-7")
        yield made


def test_a_token_that_is_too_fast_is_told_when_to_come_again(few: Calls, client: Client) -> None:
    assert few("GET", "/api/definitions").status_code == 200
    refused = few("GET", "/api/definitions")
    assert refused.status_code == 429
    assert 900 < int(refused.headers["retry-after"]) <= 1000
    assert few("GET", "/api/definitions", token=token(client.runtime, "agent-8")).status_code == 200
    assert few("GET", "/api/health").status_code == 200


def test_the_rates_of_many_tokens_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.api.rates.REMEMBERED", 3)
    rates = Rates(0.5)
    first = uuid4()
    assert [rates.wait_seconds(first) > 0 for _ in range(2)] == [False, True]
    for _ in range(3):
        rates.wait_seconds(uuid4())
    assert len(rates._left) == 3
    assert rates.wait_seconds(first) == 0


def test_a_deprecated_group_says_so_in_each_answer(settings: Settings, client: Client, ann: None) -> None:
    router = APIRouter()

    @router.get("/old")
    async def old(_: Called) -> JsonAnswer:
        return JsonAnswer({})

    since, until = datetime(2026, 11, 26, tzinfo=UTC), datetime(2027, 6, 1, tzinfo=UTC)
    with calls(settings, [RouteGroup(router, since, until)]) as made:
        answer = made("GET", "/api/old", token=token(client.runtime, "agent-7"))
        assert made.app.openapi()["paths"]["/api/old"]["get"]["deprecated"]
    assert answer.headers["deprecation"] == f"@{int(since.timestamp())}"
    assert answer.headers["sunset"] == "Tue, 01 Jun 2027 00:00:00 GMT"


def test_a_database_that_is_away_is_a_503_and_not_ready(settings: Settings) -> None:
    with calls(settings.model_copy(update={"database_url": "postgresql://x@127.0.0.1:1/x"})) as made:
        for path in ("/api/ready", "/api/instances"):
            answer = made("GET", path, token="ilk_" + "x" * 43)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert made("GET", "/api/health").json() == {"status": "ok"}


def test_the_log_names_token_and_actor_and_no_secret(call: Calls, capfd: pytest.CaptureFixture[str]) -> None:
    secret = call.token
    call("GET", f"/api/instances?name={secret}", headers={"Idempotency-Key": secret})
    call("GET", "/api/instances", token=secret + "x")
    logged = capfd.readouterr().out
    assert "/api/instances" in logged
    assert "agent-7" in logged
    assert secret not in logged


def test_a_fault_is_told_without_its_words(
    call: Calls, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a secret of the house")

    monkeypatch.setattr("interlock.db.core.instances.page", broken)
    answer = call("GET", "/api/instances")
    assert (answer.status_code, answer.json()["type"]) == (500, "urn:interlock:problem:fault")
    assert "secret of the house" not in answer.text
    assert "secret of the house" in capfd.readouterr().out
