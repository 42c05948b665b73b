"""The API as uvicorn serves it: a process of its own, that starts light, is bounded, and stops in order."""

import asyncio
import json
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from httpx import Client as HttpClient
from sqlalchemy.util import await_only, greenlet_spawn

from interlock.api import server
from interlock.console.site import create_site
from interlock.workers.client.async_client import AsyncRuntime
from interlock.workers.client.client import Client
from interlock.workers.operations.checks.api import check_api
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from tests.calling import bearing, token
from tests.serving import in_a_thread, served_here, serving
from tests.waiting import eventually

pytestmark = pytest.mark.integration


def connected(url: str) -> socket.socket:
    host, _, port = url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=30)


def test_it_serves_over_one_connection_and_stops_in_order(
    settings: Settings, client: Client, ann: None, tmp_path: Path
) -> None:
    client.create("story", "S-1")
    bearer, log = token(client.runtime, "agent-7"), tmp_path / "api.log"
    with (
        serving(settings, log) as (process, url),
        HttpClient(base_url=url, headers=bearing(bearer), timeout=60) as http,
    ):
        assert http.get("/api/health").json() == {"status": "ok"}
        assert http.get("/api/ready").json() == {"status": "ok"}
        fired = http.post("/api/triggers?wait=0", json={"instance": "S-1", "trigger": "design_complete"})
        assert fired.status_code == 202
        assert http.get("/api/openapi.json").json()["openapi"].startswith("3.1")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) in (0, -signal.SIGTERM)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert {line["by"] for line in lines if line["event"] == "http_request" and line["path"] == "/api/triggers"} == {
        "agent-7"
    }
    assert bearer not in log.read_text()


def test_an_answer_over_a_kept_connection_does_not_wait_for_an_acknowledgement(
    settings: Settings, client: Client, ann: None
) -> None:
    """Head and body are two segments: where the second waits for the first's delayed ACK, each answer takes 40 ms."""
    with (
        served_here(settings) as url,
        HttpClient(base_url=url, headers=bearing(token(client.runtime, "agent-7")), timeout=60) as http,
    ):

        def seconds() -> float:
            began = time.perf_counter()
            assert http.get("/api/instances?limit=1").status_code == 200
            return time.perf_counter() - began

        assert min(seconds() for _ in range(40)) < 0.03


class Holder:
    """An application that reads for who asks, in a task of its own, and holds the connection until it is cancelled."""

    def __init__(self, runtime: AsyncRuntime) -> None:
        self._runtime, self.read = runtime, Event()
        self.connection: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        await asyncio.shield(asyncio.create_task(greenlet_spawn(self._hold)))

    def _hold(self) -> None:
        with self._runtime.database.connect() as connection:
            connection.exec_driver_sql("SELECT 1")
            self.connection = connection.connection.driver_connection
            self.read.set()
            await_only(asyncio.Event().wait())

    async def stop(self) -> None:
        """End what would otherwise not end by itself."""


def test_at_the_end_no_connection_is_left_by_what_was_still_under_way(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that comes back to a pool after that was closed stays open until it is collected."""
    monkeypatch.setattr(server, "STOP_SECONDS", 1)
    made = list[Holder]()

    def make(runtime: AsyncRuntime) -> Holder:
        made.append(Holder(runtime))
        return made[-1]

    with served_here(settings, make) as url:
        with closing(connected(url)) as leaving:
            leaving.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert eventually(lambda: made)
            assert made[-1].read.wait(30)
        assert not made[-1].connection.closed
    assert made[-1].connection.closed


class Flood(server.Deferred):
    """An application that answers with more than anybody's buffers hold; a POST, with a word."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        if scope["method"] == "POST":
            while (await receive())["more_body"]:
                pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if scope["method"] == "POST":
            await send({"type": "http.response.body", "body": b"taken"})
            return
        for part in range(100):
            await send({"type": "http.response.body", "body": bytes(2**20), "more_body": part < 99})


@pytest.fixture
def flooding(default_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[server.Announced, str]]:
    """A server with little patience, in a thread, and its URL."""
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.3)
    monkeypatch.setattr(server, "READ_SECONDS", 0.3)
    with in_a_thread(Flood(create_site, default_settings), default_settings) as served:
        yield served


def test_a_client_that_is_slow_to_ask_is_cut_off(flooding: tuple[server.Announced, str]) -> None:
    _, url = flooding
    with (
        closing(connected(url)) as dripping,
        closing(connected(url)) as silent,
        closing(connected(url)) as behind,
        closing(connected(url)) as blank,
    ):
        dripping.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
        for each in (behind, blank):
            each.sendall(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n")
        for each, more in ((behind, b"GET / HTTP/1.1\r\nHost: "), (blank, b"\r\n")):
            received(each, lambda told: told.endswith(LAST_CHUNK))
            each.sendall(more)
        assert [ended(each) for each in (dripping, silent, behind, blank)] == [b""] * 4, "closed without an answer"
    with closing(connected(url)) as huge:
        huge.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * server.HEAD_BYTES * 2)
        assert b"400" in huge.recv(100)
    with closing(connected(url)) as whole:
        whole.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * server.HEAD_BYTES + b"\r\n\r\n")
        assert b"400" in whole.recv(100)


LAST_CHUNK = b"0\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"


@pytest.mark.parametrize(
    "endless", [b"0\r\n" + b"X: y\r\n" * 99_999, b"1;" + b"x" * 999_999], ids=["trailers", "extension"]
)
def test_what_is_in_a_body_and_not_of_it_is_bounded(flooding: tuple[server.Announced, str], endless: bytes) -> None:
    serving, url = flooding
    with closing(connected(url)) as sending:
        with suppress(ConnectionError):  # it is cut off
            sending.sendall(CHUNKED + endless)
        assert eventually(lambda: not serving.server_state.connections)
    with closing(connected(url)) as sound:
        sound.sendall(CHUNKED + b"1;a=b\r\nx\r\n0\r\nX: y\r\n\r\n" + CHUNKED + LAST_CHUNK)
        received(sound, lambda told: b"taken" in told)


def test_requests_behind_each_other_in_one_segment_are_all_answered(settings: Settings) -> None:
    asked = b"GET /api/health HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * 1_000 + b"\r\n\r\n"
    with served_here(settings) as url, closing(connected(url)) as pipelining:
        pipelining.sendall(asked * 40)
        received(pipelining, lambda told: told.count(b'{"status"') >= 40)


def test_a_client_that_does_not_read_is_cut_off(flooding: tuple[server.Announced, str]) -> None:
    serving, url = flooding
    with closing(connected(url)) as deaf:
        deaf.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        deaf.recv(1)
        assert eventually(lambda: not serving.server_state.connections)


def received(connection: socket.socket, enough: Callable[[bytes], bool]) -> None:
    """Read on until it is enough: an answer may come in parts."""
    told = b""
    while not enough(told):
        told += (more := connection.recv(9_999))
        assert more, told[-200:]


def ended(connection: socket.socket) -> bytes:
    """What comes until the server closes; it may close by a reset."""
    with suppress(ConnectionResetError):
        return connection.recv(100)
    return b""


@pytest.mark.parametrize(
    ("wrong", "said"),
    [({"api_host": "192.0.2.1"}, "INTERLOCK_API_PORT"), ({"api_tls_certificate": Path("/nowhere")}, "certificate")],
    ids=str,
)
def test_an_address_or_certificate_that_cannot_be_used_is_said(
    default_settings: Settings, wrong: dict[str, object], said: str
) -> None:
    chosen = default_settings.model_copy(update=wrong)
    with pytest.raises(server.CannotServe, match=said):
        server.serve(create_site, chosen, chosen.api_host, 0)


def test_doctor_says_whether_the_api_answers_and_whether_tokens_are_read_on_the_way(
    client: Client, settings: Settings, tmp_path: Path
) -> None:
    def found(**said: object) -> dict[str, str]:
        runtime = Runtime(settings.model_copy(update=said))
        return {each.level: each.message for each in check_api(runtime)}

    with served_here(settings) as url:
        assert found(api_url=url) == {"ok": f"{url} answers"}
    assert "does not answer" in found(api_url=url)["fail"]
    assert "without TLS" in found(api_host="192.0.2.1")["warn"]
    assert "warn" not in found(api_host="192.0.2.1", api_tls_certificate=tmp_path)
