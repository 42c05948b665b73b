"""Server-sent events: each once, in commit order, whatever ends in between, and nothing kept for who does not read."""

import asyncio
import random
import signal
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import pytest
from httpx import Response
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from redis import Redis
from sqlalchemy import text

from interlock.api import feed, holding, newest, server
from interlock.api.announcements import Announcements
from interlock.api.routes import events
from interlock.console.site import create_site
from interlock.db.schema import in_schema
from interlock.workers.client.client import Client
from interlock.workers.overrides.tokens import revoke_tokens
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.settings import Settings
from interlock.workflows.audit.cursors import text_of
from tests.api.test_served import connected
from tests.calling import Calls, bearing, token
from tests.driving import applied, block_stories
from tests.integration.test_relay import block
from tests.serving import in_a_thread, served_here, serving
from tests.streaming import Block, blocks
from tests.waiting import eventually

pytestmark = pytest.mark.integration
STREAMS = 500
LONG = 120.0  # a new server's first answer takes 2 s of CPU; on a busy machine it was seen to take 35 s


@pytest.fixture
def http(settings: Settings, client: Client, ann: None) -> Iterator[httpx.Client]:
    """A served API, and a client of it with a token for the project `default`."""
    bearer = token(client.runtime, "agent-7")
    with (
        served_here(settings) as url,
        httpx.Client(base_url=url, headers=bearing(bearer), timeout=LONG) as made,
    ):
        yield made


def read(http: httpx.Client, cursor: str, count: int) -> list[Block]:
    """The next so many events behind a cursor; then the connection is closed."""
    with http.stream("GET", "/api/events", headers={"Last-Event-ID": cursor}) as answer:
        assert answer.status_code == 200
        return list(islice((each for each in blocks(answer.iter_lines(), cursor) if each.event), count))


def entities(found: list[Block]) -> list[str]:
    return [each.event["entity_id"] for each in found if each.event]


def polled(call: Calls, query: str = "", **said: Any) -> list[Block]:
    """What there is now."""
    return list(blocks(call("GET", f"/api/events?wait=0{query}", **said).text.splitlines()))


def history_of(client: Client) -> list[str]:
    """What the client's project has, in commit order, by another way than the stream's."""
    query = text(
        in_schema(
            "SELECT xid::text::bigint, position FROM interlock.workflow_transitions JOIN"
            " interlock.workflow_instances i ON i.id = workflow_id WHERE project = :project ORDER BY xid, position"
        )
    )
    with client.runtime.database.connect() as connection:
        return [text_of((xid, position)) for xid, position in connection.execute(query, {"project": client.project})]


@hypothesis_settings(max_examples=12)
@given(
    steps=st.lists(st.sampled_from(["move", "move", "flush", "read", "open and leave"]), max_size=10), rnd=st.randoms()
)
def test_whatever_is_cut_off_each_event_comes_once_in_order(
    http: httpx.Client, client: Client, valkey: "Redis", steps: list[str], rnd: random.Random
) -> None:
    """Against a list: what was committed since the reader's cursor."""
    before = history_of(client)
    cursor, made, got = (before[-1] if before else "0"), list[str](), list[str]()

    def take(count: int) -> None:
        nonlocal cursor
        for each in read(http, cursor, count):
            assert each.event
            assert each.id == each.event["cursor"] > cursor
            cursor = each.id
            got.append(each.event["entity_id"])

    for step in [*steps, "move"]:
        match step:
            case "flush":
                valkey.flushall()
            case "move":
                made.append(f"S-{len(before)}-{len(made)}")
                block_stories(client, made[-1])
            case "read":
                take(rnd.randint(0, len(made) - len(got)))
            case "open and leave":
                read(http, cursor, 0)
    take(len(made) - len(got))
    assert got == made
    assert before + [each.id for each in read(http, before[-1] if before else "0", len(made))] == history_of(client)


def test_readers_that_come_and_go_get_all_that_many_writers_commit_at_once(
    http: httpx.Client, client: Client, database_url: str
) -> None:
    """Transactions that took their place earlier and commit later are in the order of commits, too."""
    writers, each_writes, readers = 4, 12, 5
    client.create("story", "slow")
    total = writers * each_writes + 1

    def write(number: int) -> None:
        for nth in range(each_writes):
            name = f"W-{number}-{nth}"
            client.create("story", name)
            applied(client, f"story/{name}", "block")

    def follow(number: int) -> list[str]:
        got, rnd = list[Block](), random.Random(number)
        while len(got) < total:
            got += read(http, got[-1].id if got else "0", min(rnd.randint(1, 15), total - len(got)))
        return [each.id for each in got]

    with closing(block(database_url, client.show("story/slow")["id"])) as slow, ThreadPoolExecutor(9) as threads:
        reading = [threads.submit(follow, each) for each in range(readers)]
        list(threads.map(write, range(writers)))
        slow.commit()
        found = [each.result(60) for each in reading]
    expected = history_of(client)
    assert len(expected) == total
    assert [each for each in found if each != expected] == []


def test_a_token_sees_its_projects_only_and_filters_leave_the_rest_out(call: Calls, client: Client) -> None:
    block_stories(client, "mine", "also mine")
    block_stories(Client(client.runtime, project="other"), "theirs")
    applied(client, "mine", "unblock")
    every = token(client.runtime, "agent-8", projects=None)

    def seen(query: str, bearer: str | None = None) -> list[str]:
        return entities(polled(call, f"&after=0{query}", token=bearer))

    assert seen("") == ["mine", "also mine", "mine"]
    assert seen("&project=default", every) == seen("")
    assert seen("&type=story", every) == ["mine", "also mine", "theirs", "mine"]
    assert seen("&state=blocked&state=done") == ["mine", "also mine"]
    assert seen("&type=sprint&type=run") == []
    assert seen("&type=sprint&state=blocked") == []
    assert call("GET", "/api/events?wait=0&project=other").status_code == 403


def test_it_begins_now_and_says_where_that_is(call: Calls, client: Client) -> None:
    block_stories(client, "before")
    (begin,) = polled(call)
    assert begin.event is None
    block_stories(client, "after")
    assert entities(polled(call, headers={"Last-Event-ID": begin.id})) == ["after"]
    assert entities(polled(call, "&after=0", headers={"Last-Event-ID": begin.id})) == ["after"], "the header is newer"
    (ahead,) = polled(call, f"&after={2**39}-1")
    block_stories(client, "later")
    assert entities(polled(call, f"&after={ahead.id}")) == ["later"], "a cursor ahead of history is from now on"


@pytest.mark.parametrize("cursor", ["x", "1-2-3", f"{2**41}-1"])
def test_a_cursor_that_is_none_or_another_databases_is_refused(call: Calls, cursor: str) -> None:
    assert call("GET", f"/api/events?wait=0&after={cursor}").status_code == 422


def test_a_stream_that_wants_nothing_of_it_moves_on_and_lives(
    call: Calls, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "HEARTBEAT_SECONDS", 0.02)
    block_stories(client, "S-1")
    sent = call("GET", "/api/events?after=0&type=sprint&wait=2").text
    assert "\n:\n\n" in sent
    assert "data:" not in sent
    assert [*blocks(sent.splitlines())][-1].id >= history_of(client)[-1]


def test_who_is_behind_what_is_kept_reads_history(call: Calls, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newest, "MOST_EVENTS", 2)
    monkeypatch.setattr(feed, "BATCH", 2)
    names = [f"S-{n}" for n in range(7)]
    block_stories(client, *names)
    got: list[Block] = []

    async def follow() -> None:
        """Streams of every place at once, while the events come into memory."""
        headers = bearing(call.token)
        answers = await asyncio.gather(
            *(call.client.get("/api/events?wait=1", headers=headers | {"Last-Event-ID": each.id}) for each in [*got])
        )
        for place, answer in enumerate(answers, 1):
            assert entities(list(blocks(answer.text.splitlines()))) == names[place:]

    got += [each for each in polled(call, "&after=0") if each.event]
    assert entities(got) == names
    call.loop.run(follow())


def test_what_is_kept_is_bounded_by_number_and_by_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newest, "MOST_EVENTS", 10)
    monkeypatch.setattr(newest, "MOST_BYTES", 100)
    kept = newest.Newest((0, 0))

    def add(number: int, size: int) -> None:
        kept.add([newest.StreamedEvent((number, 0), "p", "t", "s", b"x" * size)])

    for number in range(1, 12):
        add(number, 1)
    assert (kept.start, kept.end) == ((6, 0), (11, 0))
    assert kept.behind((5, 9)) is None
    assert [each.order[0] for each in kept.behind((8, 0)) or ()] == [9, 10, 11]
    add(12, 99)
    add(13, 1_000)
    assert [each.order[0] for each in kept.behind(kept.start) or ()] == [13], "one is kept, however large"


def test_a_stream_ends_soon_after_its_token_is_revoked(http: httpx.Client, client: Client) -> None:
    with http.stream("GET", "/api/events") as revoked:
        lines = revoked.iter_lines()
        assert next(lines).startswith("retry:")
        revoke_tokens(client.runtime, "agent-7", OverrideOrder("ann", "a test"))
        assert not any(line.startswith("data:") for line in lines)
    assert http.get("/api/events").status_code == 401


def test_many_streams_at_once_are_served_beside_all_else(http: httpx.Client, client: Client) -> None:
    url, bearers = str(http.base_url), [http.headers["Authorization"], f"Bearer {token(client.runtime, 'bot')}"]
    reading = []
    with ExitStack() as opened:
        for number in range(STREAMS):
            connection = opened.enter_context(closing(connected(url)))
            head = f"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {bearers[number % 2]}\r\n\r\n"
            connection.sendall(head.encode())
            file = opened.enter_context(connection.makefile("r", encoding="utf-8"))
            reading.append(blocks(line.rstrip("\n") for line in file))
            assert next(block.id for block in reading[-1] if block.id)
        block_stories(client, "S-1")
        assert {next(block.event["entity_id"] for block in each if block.event) for each in reading} == {"S-1"}
        assert http.get("/api/instances").status_code == 200


def test_more_streams_than_a_process_takes_are_told_to_wait(
    call: Calls, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "MOST_STREAMS", 1)
    headers = bearing(call.token)

    async def both() -> list[int]:
        asked = [call.client.get("/api/events?wait=0.3", headers=headers) for _ in range(2)]
        return sorted(each.status_code for each in await asyncio.gather(*asked))

    assert call.loop.run(both()) == [200, 503]
    assert polled(call), "there is room again"


def test_no_token_alone_takes_the_streams_of_all_others(
    call: Calls, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holding, "MOST_OF_A_TOKEN", 1)
    holders = [bearing(call.token), bearing(call.token), bearing(token(client.runtime, "bot"))]

    async def all_three() -> list[Response]:
        asked = [call.client.get("/api/events?wait=0.3", headers=each) for each in holders]
        return sorted(await asyncio.gather(*asked), key=lambda each: each.status_code)

    *others, last = call.loop.run(all_three())
    assert [each.status_code for each in others] == [200, 200]
    assert (last.status_code, last.headers["retry-after"]) == (429, "5")
    assert "event streams open" in last.json()["detail"]


@pytest.fixture
def impatient(
    settings: Settings, client: Client, ann: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[server.Announced, str]]:
    """The API in a thread, which cuts off who does not read for a moment; and its URL."""
    monkeypatch.setattr(server, "READ_SECONDS", 0.3)
    with in_a_thread(server.Deferred(create_site, settings), settings) as served:
        yield served


def test_who_does_not_read_is_cut_off_and_holds_nobody_up(
    impatient: tuple[server.Announced, str], client: Client
) -> None:
    running, url = impatient
    bearer = bearing(token(client.runtime, "agent-7"))
    client.create("story", "S-1")
    with closing(socket.socket()) as deaf, httpx.Client(base_url=url, headers=bearer, timeout=LONG) as http:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        host, _, port = url.removeprefix("http://").partition(":")
        deaf.connect((host, int(port)))
        head = f"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {bearer['Authorization']}\r\n\r\n"
        deaf.sendall(head.encode())
        assert deaf.recv(1)
        with http.stream("GET", "/api/events") as reading:
            lines = reading.iter_lines()
            for nth in range(200):
                trigger = ("block", "unblock")[nth % 2]
                client.fire("story/S-1", trigger, by="ann", data={"text": "x" * 60_000})
            applied(client, "story/S-1", "block")
            seqs = (each.event["seq"] for each in blocks(lines) if each.event)
            assert list(islice(seqs, 201)) == list(range(1, 202))
            assert eventually(lambda: len(running.server_state.connections) == 1)


def test_a_server_that_stops_ends_its_streams_first(
    settings: Settings, client: Client, ann: None, tmp_path: Path
) -> None:
    bearer, log = bearing(token(client.runtime, "agent-7")), tmp_path / "api.log"
    with (
        serving(settings, log) as (process, url),
        httpx.Client(base_url=url, headers=bearer, timeout=LONG) as http,
        http.stream("GET", "/api/events") as answer,
    ):
        lines = answer.iter_lines()
        next(lines)
        process.send_signal(signal.SIGTERM)
        assert [each for each in lines if each.startswith("data")] == [], "and it ends as a whole answer does"
        assert process.wait(30) in (0, -signal.SIGTERM)
    assert "Traceback" not in log.read_text()
    assert "Cancel" not in log.read_text()


def test_announcements_are_heard_and_their_absence_only_delays(valkey: "Redis", settings: Settings) -> None:
    async def heard(url: str | None, publish: Callable[[], object]) -> bool:
        announced = Announcements(url)
        assert not await announced.wait(0.01)
        publish()
        try:
            return await announced.wait(5.0 if url == settings.resolved_redis_url() else 0.01)
        finally:
            await announced.close()

    def publish() -> object:
        return [valkey.publish("project:default", "{}") for _ in range(3)]

    assert asyncio.run(heard(settings.resolved_redis_url(), publish))
    assert not asyncio.run(heard("redis://127.0.0.1:1/0", publish))
    assert not asyncio.run(heard(None, publish))
