"""The exporter: readable by Prometheus, by several at once, and alive whatever the database does."""

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.request import urlopen
from uuid import UUID

import pytest
from prometheus_client.parser import text_string_to_metric_families

from interlock.workers.client.client import Client
from interlock.workers.operations import metrics_server
from interlock.workers.operations.metrics import METRICS, Reader
from interlock.workers.relay.destinations import Counters
from interlock.workers.relay.relay import relay
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from tests.driving import UP_TO_REVIEW, applied
from tests.listening import answering
from tests.waiting import eventually

pytestmark = pytest.mark.integration


@contextmanager
def served(runtime: Runtime) -> Iterator[str]:
    """The exporter's address, while the block runs."""
    with metrics_server.listening(runtime, "127.0.0.1", 0) as server, answering(server):
        yield f"http://127.0.0.1:{server.server_port}"


def scraped(url: str) -> dict[str, Any]:
    with urlopen(f"{url}/metrics", timeout=20) as answer:  # noqa: S310 - our own address
        assert answer.headers["Content-Type"].startswith("text/plain; version=")
        return {family.name: family for family in text_string_to_metric_families(answer.read().decode())}


def test_the_exposition_parses_and_has_every_metric_with_its_type_and_labels(
    client: Client, stories: list[UUID]
) -> None:
    applied(client, stories[0], *UP_TO_REVIEW)
    relay(client.runtime.database, [Counters()])
    with served(client.runtime) as url:
        families = scraped(url)
    for each in METRICS:
        family = families[each.name.removesuffix("_total") if each.kind == "counter" else each.name]
        assert (family.type, family.documentation) == (each.kind, each.help)
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(each.labels), sample
    spent = [s for s in families["state_transition_duration_seconds"].samples if s.labels["state"] == "analysis"]
    assert {s.name.rpartition("_")[2]: s.value for s in spent if s.labels.get("le") in (None, "+Inf")}["count"] == 1
    ordered = [s.value for s in spent if s.name.endswith("_bucket")]
    assert ordered == sorted(ordered)
    assert ordered[-1] == 1


def test_no_label_is_an_entity(client: Client, stories: list[UUID]) -> None:
    applied(client, stories[0], *UP_TO_REVIEW)
    text = metrics_server.shown(client.runtime)
    assert "S-0" not in text
    assert str(stories[0]) not in text


def test_two_scrapers_at_once_read_the_same(client: Client, stories: list[UUID]) -> None:
    applied(client, stories[0], *UP_TO_REVIEW)
    relay(client.runtime.database, [Counters()])
    with served(client.runtime) as url, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: scraped(url), range(16)))
    for name in ("state_transitions", "entity_state", "state_transition_duration_seconds"):
        assert all(answer[name].samples == answers[0][name].samples for answer in answers)


def test_a_database_that_is_away_is_a_503_and_the_exporter_lives(
    client: Client, make_runtime: Callable[..., Runtime]
) -> None:
    away = make_runtime(database_url="postgresql://nobody:x@127.0.0.1:1/none")
    with served(away) as url:
        assert asked(url, "/metrics") == (503, b"the database does not answer: ")
        assert asked(url, "/healthcheck") == (200, b"OK\n")
        assert asked(url, "/admin")[0] == 404


def test_an_exporter_where_nothing_runs_yet_says_so(tmp_path: Path) -> None:
    nowhere = Runtime(Settings(home=tmp_path / "h", database_url=None, broker_url=None))
    with served(nowhere) as url:
        assert asked(url, "/metrics") == (503, b"the database does not answer: ")
    nowhere.close()


def asked(url: str, path: str) -> tuple[int, bytes]:
    """Its status, and how its answer begins."""
    connection = HTTPConnection(url.removeprefix("http://"), timeout=20)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read(30)
    finally:
        connection.close()


def spoken(url: str, *pieces: bytes) -> bytes:
    """What a server answers to bytes, until it hangs up."""
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=20) as line, suppress(ConnectionError):
        for piece in pieces:
            line.sendall(piece)
        return b"".join(iter(lambda: line.recv(65536), b""))
    return b""


def status(url: str, host: bytes, line: bytes = b"GET /healthcheck HTTP/1.1") -> int:
    return int(spoken(url, line + b"\r\n" + host + b"\r\n\r\n").split()[1])


def test_it_answers_under_its_own_names_only(make_runtime: Callable[..., Runtime]) -> None:
    """A page that has its name mean 127.0.0.1 reads nothing: the browser says that name."""
    with served(make_runtime(allowed_hosts=("metrics.example",))) as url:
        for host in (b"127.0.0.1", b"LOCALHOST:9464", b"[::1]:9464", b"metrics.example:1", url[7:].encode()):
            assert status(url, b"Host: " + host) == 200, host
        for host in (
            b"evil.example",
            b"127.0.0.1.evil.example",
            b"10.1.2.3",
            b"",
            b"localhost:x",
            b"[::1",
            b"@localhost",
        ):
            assert status(url, b"Host: " + host) == 421, host
        assert status(url, b"Accept: */*") == 421, "no Host at all"
        assert status(url, b"Host: localhost\r\nHost: evil.example") == 421
        assert status(url, b"Host: localhost", b"POST /metrics HTTP/1.1") == 405


def test_scrapes_within_a_second_read_the_database_once(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []
    monkeypatch.setattr("interlock.workers.operations.metrics_server.SHARED_SECONDS", 3600.0)
    monkeypatch.setattr(Reader, "collect", lambda _: reads.append(1) or [])
    with served(client.runtime) as url, ThreadPoolExecutor(8) as pool:
        assert {code for code, _ in pool.map(lambda _: asked(url, "/metrics"), range(16))} == {200}
    assert len(reads) == 1


def test_whoever_asks_slowly_at_length_or_too_often_is_hung_up_on(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.workers.operations.metrics_server.HEAD_SECONDS", 0.5)
    with served(runtime) as url:
        assert spoken(url, b"GET /metrics HTTP/1.1\r\nHost: lo") == b""
        long = b"GET /healthcheck HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * metrics_server.HEAD_BYTES + b"\r\n\r\n"
        assert spoken(url, long)[9:12] in (b"431", b"")
        assert asked(url, "/healthcheck")[0] == 200
        monkeypatch.setattr("interlock.workers.operations.metrics_server.HEAD_SECONDS", 20.0)
        port = int(url.rpartition(":")[2])
        with ExitStack() as held:
            for _ in range(metrics_server.AT_ONCE):
                held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
            assert spoken(url, b"")[9:12] == b"503"
        assert eventually(lambda: spoken(url, b"GET /healthcheck HTTP/1.1\r\nHost: localhost\r\n\r\n")[9:12] == b"200")


def test_an_address_that_is_taken_is_said_so(runtime: Runtime) -> None:
    with served(runtime) as url:
        port = int(url.rpartition(":")[2])
        with (
            pytest.raises(metrics_server.CannotListen, match="INTERLOCK_METRICS_PORT"),
            metrics_server.listening(runtime, "127.0.0.1", port),
        ):
            pass


def speaks(host: str) -> bool:
    """Whether this machine can listen there: not everyone has IPv6."""
    try:
        socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]")])
def test_it_says_where_it_listens_and_asks_no_name_server(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, host: str, shown: str
) -> None:
    if not speaks(host):
        pytest.skip("no IPv6 here")

    def away(*_: object) -> str:
        raise AssertionError("a name server was asked")

    monkeypatch.setattr("socket.getfqdn", away)
    with metrics_server.listening(runtime, host, 0) as server:
        assert metrics_server.url(server) == f"http://{shown}:{server.server_port}/metrics"
