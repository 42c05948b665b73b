"""A trigger is fired without FastAPI's machinery, and answered as FastAPI would answer it."""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import product
from typing import Any

import pytest
from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient, Response
from starlette.types import Receive, Scope, Send

from interlock.api.bounds import Bounds
from interlock.api.direct import Direct, sound
from interlock.api.groups import RouteGroup
from interlock.api.routes import triggers
from interlock.workers.client.client import Client
from interlock.workers.settings import Settings
from tests.calling import BASE, Calls, bearing, calls, token

pytestmark = pytest.mark.integration
BODY = b'{"instance": "S-1", "trigger": "design_complete"}'
SOUND = [
    BODY,
    b' {"instance":"story/S-1","trigger":"block","request_id":"","data":{"a":[1,{"b":null}]},"proof":""}',
    b'{"instance":"S-1","trigger":"block","after_seconds":"60","if_version":0,"project":"default"}',
    b'{"instance":"S-1","trigger":"block","not_before":"2100-01-01T00:00:00Z"}',
    '{"instance":"S-1","trigger":"block","data":{"é":"\\ud83d\\ude00"}}'.encode("utf-16"),
    b'{"instance":"S-1","trigger":"block","trigger":"design_complete"}',
    b'{"instance":"S-9","trigger":"block"}',
    b'{"instance":"S-1","trigger":"nonsense"}',
    b'{"instance":"S-1","trigger":"block","data":{"n":NaN}}',
    b'{"instance":"S-1","trigger":"block","proof":"claim:1"}',
    b'{"instance":"S-1","trigger":"block","after_seconds":1,"not_before":"2100-01-01T00:00:00Z"}',
    b'{"instance":"S-1","trigger":"block","request_id":"interlock:x"}',
    b'{"instance":"S-1","trigger":"block","project":"other"}',
]
UNSOUND = [
    b"", b"{", b"[]", b"null", b"7", b'"x"', b"{}", b"\xff\xfe\xfd", b'{"instance":"S-1"}',
    b'{"instance":"S-1","trigger":"block","by":"ann"}', b'{"instance":1,"trigger":"block"}',
    b'{"instance":"S-1","trigger":"a\\u0000"}', b'{"instance":"S-1","trigger":"block","data":[]}',
    b'{"instance":"S-1","trigger":"block","if_version":"1"}',
    b'{"instance":"S-1","trigger":"block","after_seconds":-1}',
    b'{"instance":"S-1","trigger":"block","not_before":"2100-01-01T00:00:00"}',
    b'{"instance":"S-1","trigger":"block","not_before":"x"}', b'{"instance":"\\ud800","trigger":"block"}',
]  # fmt: skip
TYPES: list[dict[str, str]] = [
    {"content-type": each}
    for each in (
        "application/json", "Application/JSON; charset=UTF-8", "application/json;charset=latin-1", "text/plain",
        "application/problem+json", "application/json, text/plain", "",
    )
] + [{}]  # fmt: skip
QUERIES = [
    "wait=0",
    "wait=0.0",
    "",
    "wait=",
    "wait=-1",
    "wait=61",
    "wait=1e-3",
    "wait=60&wait=0",
    "wait=%30",
    "wait=0&x=1",
    "wait=nan",
]
KEYS: list[list[tuple[str, str]]] = [
    [], [("idempotency-key", '"one"')], [("idempotency-key", "")], [("idempotency-key", "x" * 500)],
    [("idempotency-key", "one"), ("idempotency-key", "two")], [("idempotency_key", "one")],
    [("idempotency-key", "interlock:1")],
]  # fmt: skip


@pytest.fixture
def both(call: Calls, client: Client, settings: Settings) -> Iterator[tuple[Calls, AsyncClient]]:
    """Calls of the API, and a client of the same without what is tried here."""
    client.create("story", "S-1")

    async def plain(scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = call.app
        await FastAPI.__call__(call.app, scope, receive, send)

    transport = ASGITransport(Bounds(plain, settings), raise_app_exceptions=False)
    made = AsyncClient(transport=transport, base_url=BASE)
    yield call, made
    call.loop.run(made.aclose())


def said(answer: Response) -> tuple[int, dict[str, str], Any]:
    """What is the same however often a request is sent."""
    body = answer.json()
    for each in (body, body.get("receipt", {})):
        each.pop("request_id", None)
        each.pop("replayed", None)
    headers = dict(answer.headers)
    headers.pop("content-length")
    return answer.status_code, headers, body


def assert_alike(
    both: tuple[Calls, AsyncClient], body: bytes, headers: list[tuple[str, str]], query: str = "wait=0"
) -> int:
    call, plain = both

    async def asked() -> list[Response]:
        url = f"/api/triggers?{query}"
        return [await each.post(url, content=body, headers=headers) for each in (call.client, plain)]

    ours, theirs = map(said, call.loop.run(asked()))
    assert ours == theirs, (body, headers, query)
    return ours[0]


@pytest.mark.parametrize("body", SOUND + UNSOUND)
def test_any_body_is_answered_alike(both: tuple[Calls, AsyncClient], body: bytes) -> None:
    for kind in TYPES:
        assert_alike(both, body, [*bearing(both[0].token).items(), *kind.items()])


def test_any_header_and_query_is_answered_alike(both: tuple[Calls, AsyncClient], client: Client) -> None:
    mine, kind = both[0].token, ("content-type", "application/json")
    bearers = [
        [], [("authorization", f"bearer  {mine} ")], [("authorization", mine)], [("authorization", f"Basic {mine}")],
        [("authorization", f"Bearer {mine}"), ("authorization", "Bearer x")], [("authorization", "Bearer")],
        [("authorization", f"Bearer {mine}x")], [*bearing(token(client.runtime, "r", "read-only")).items()],
    ]  # fmt: skip
    told = {assert_alike(both, BODY, [kind, *each]) for each in bearers}
    told |= {
        assert_alike(both, BODY, [kind, *bearing(mine).items(), *key], query)
        for query, key in product(QUERIES[:2], KEYS)
    }
    told |= {assert_alike(both, BODY, [kind, *bearing(mine).items()], query) for query in QUERIES[3:]}
    assert told == {202, 401, 403, 422}


def scope(kind: str = "application/json", query: bytes = b"wait=0") -> Scope:
    headers = [(b"authorization", b"Bearer x"), (b"content-type", kind.encode())]
    return {"headers": headers, "query_string": query}


def test_what_is_sound_takes_the_short_way() -> None:
    assert all(sound(scope(), body) for body in SOUND)
    assert sound(scope(query=b""), BODY)
    assert not any(sound(scope(), body) for body in UNSOUND)


def test_a_deprecated_group_says_so_on_the_short_way_too(settings: Settings, client: Client, ann: None) -> None:
    client.create("story", "S-1")
    group = RouteGroup(triggers.router, datetime(2026, 11, 26, tzinfo=UTC))
    with calls(settings, [group]) as made:
        made.token = token(client.runtime, "agent-7")
        for body in (SOUND[0], UNSOUND[-1]):
            kind = {"content-type": "application/json"}
            answer = made("POST", "/api/triggers?wait=0", content=body, headers=kind)
            assert answer.headers["deprecation"].startswith("@"), answer.text
        assert isinstance(made.app._outer._app, Direct)
