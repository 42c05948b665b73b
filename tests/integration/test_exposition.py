"""The exporter: readable by Prometheus, by several at once, and alive whatever the database does."""

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.request import urlopen
from uuid import UUID

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.driving import UP_TO_REVIEW, applied
from workers import exposition
from workers.client import Client
from workers.metrics import METRICS, Counters
from workers.relay import relay
from workers.runtime import Runtime
from workers.settings import Settings

pytestmark = pytest.mark.integration


@contextmanager
def served(runtime: Runtime) -> Iterator[str]:
    """The exporter's address, while the block runs."""
    with exposition.listening(runtime, "127.0.0.1", 0) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


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
        assert (family.type, family.documentation) == (each.kind, each.says)
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(each.labels), sample
    spent = [s for s in families["state_transition_duration_seconds"].samples if s.labels["state"] == "analysis"]
    assert {s.name.rpartition("_")[2]: s.value for s in spent if s.labels.get("le") in (None, "+Inf")}["count"] == 1
    ordered = [s.value for s in spent if s.name.endswith("_bucket")]
    assert ordered == sorted(ordered)
    assert ordered[-1] == 1


def test_no_label_is_an_entity(client: Client, stories: list[UUID]) -> None:
    applied(client, stories[0], *UP_TO_REVIEW)
    text = exposition.shown(client.runtime)
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


def test_an_address_that_is_taken_is_said_so(runtime: Runtime) -> None:
    with served(runtime) as url:
        port = int(url.rpartition(":")[2])
        with (
            pytest.raises(exposition.CannotListen, match="INTERLOCK_METRICS_PORT"),
            exposition.listening(runtime, "127.0.0.1", port),
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
    with exposition.listening(runtime, host, 0) as server:
        assert exposition.url(server) == f"http://{shown}:{server.server_port}/metrics"
