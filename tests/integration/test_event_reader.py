"""`Client.events`: every event once, in commit order, whatever became of the stream."""

import asyncio
from collections.abc import Callable
from contextlib import closing
from itertools import islice
from threading import Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from redis import Redis

from interlock import AsyncClient, CommittedEvent
from interlock.workers.broker.event_stream import STREAM
from interlock.workers.client import event_reader
from interlock.workers.client.async_client import AsyncRuntime
from interlock.workers.client.client import Client
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput
from tests.driving import applied, block_stories
from tests.integration.test_relay import block, carried
from tests.waiting import eventually

pytestmark = pytest.mark.integration
QUIET = 0.01


def names(client: Client, cursor: str | None = "0") -> list[str]:
    return [each.entity_id for each in client.events(cursor, quiet_seconds=QUIET)]


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has read everything asks again at once: a reading that ends does so after a look at history, not a time."""
    monkeypatch.setattr(event_reader, "WAIT_MILLISECONDS", 10)
    monkeypatch.setattr(event_reader, "PAUSE_SECONDS", 0.01)


@pytest.fixture
def history_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many events each look at history gave."""
    looked: list[int] = []
    batch = event_reader.history.batch

    def counted(*args: object, **kwargs: object) -> object:
        found = batch(*args, **kwargs)  # type: ignore[arg-type]
        looked.append(len(found))
        return found

    monkeypatch.setattr(event_reader.history, "batch", counted)
    return looked


def test_the_stream_and_history_say_the_same(client: Client, valkey: "Redis") -> None:
    block_stories(client, "S-1", "S-2")
    applied(client, "story/S-1", "unblock")
    from_history = list(client.events("0", quiet_seconds=QUIET))
    carried(client.runtime)
    from_stream = list(client.events("0", quiet_seconds=QUIET))
    assert from_stream == from_history
    assert [each.cursor for each in from_stream] == sorted(each.cursor for each in from_stream)
    (event,) = islice(client.events("0"), 1)
    (said,) = client.history("story/S-1")[:1]
    assert (event.entity_id, event.seq, event.trigger, event.created_at) == ("S-1", 1, "block", said["created_at"])


def test_a_reader_goes_on_after_its_cursor_from_the_stream_alone(
    client: Client, valkey: "Redis", history_reads: list[int]
) -> None:
    block_stories(client, "S-1", "S-2", "S-3")
    carried(client.runtime)
    history_reads.clear()  # the relay's own
    first, second, third = client.events("0", quiet_seconds=QUIET)
    assert sum(history_reads) == 0
    assert list(client.events(first.cursor, quiet_seconds=QUIET)) == [second, third]


def test_what_was_trimmed_flushed_or_lost_in_the_middle_comes_from_history(
    client: Client, valkey: "Redis", history_reads: list[int]
) -> None:
    reading = client.events("0", quiet_seconds=20.0)
    block_stories(client, "S-1", "S-2", "S-3")
    carried(client.runtime)
    assert [each.entity_id for each in islice(reading, 1)] == ["S-1"]
    valkey.xtrim(STREAM, maxlen=1, approximate=False)
    assert [each.entity_id for each in islice(reading, 2)] == ["S-2", "S-3"]
    assert names(client) == ["S-1", "S-2", "S-3"]
    assert sum(history_reads) > 0
    valkey.flushall()
    block_stories(client, "S-4", "S-5")
    carried(client.runtime)
    block_stories(client, "S-6")
    carried(client.runtime)
    (_, (entry, _), _) = valkey.xrange(STREAM)  # type: ignore[misc]
    valkey.xdel(STREAM, entry)  # as if Redis had lost what it had not written to disk
    assert [each.entity_id for each in islice(reading, 3)] == ["S-4", "S-5", "S-6"]


def test_a_reader_waits_for_the_next_event_and_is_told_without_redis_too(
    client: Client, make_runtime: Callable[..., Runtime], valkey: "Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = Client(make_runtime(broker_url="amqp://127.0.0.1:9", redis_url=None))
    got: dict[str, list[str]] = {"with": [], "without": []}

    def read(name: str, reading: Client) -> None:
        for each in reading.events(types=["story"], quiet_seconds=20.0):
            got[name].append(each.entity_id)
            if len(got[name]) == 3:
                return

    readers = [Thread(target=read, args=each) for each in (("with", client), ("without", alone))]
    for each in readers:
        each.start()
    for name in ("S-1", "S-2", "S-3"):
        block_stories(client, name)
        carried(client.runtime)
    for each in readers:
        each.join(30)
    assert got["with"][-1:] == got["without"][-1:] == ["S-3"]


def test_only_events_of_the_project_and_types_that_are_asked_for(client: Client) -> None:
    other = Client(client.runtime, project="other")
    block_stories(client, "mine")
    block_stories(other, "theirs")
    client.create("sprint", "P", by="ann")

    def found(**how: object) -> list[str]:
        return [each.entity_id for each in client.events("0", quiet_seconds=QUIET, **how)]  # type: ignore[arg-type]

    assert found() == ["mine"]
    assert found(project="other") == ["theirs"]
    assert found(every_project=True, types=["story"]) == ["mine", "theirs"]
    assert found(types=["sprint"]) == []


@pytest.mark.parametrize("cursor", ["", "x", "1-2-3", "-1", "9" * 40, f"{2**41}-1"])
def test_what_is_no_cursor_of_this_database_is_refused(client: Client, cursor: str) -> None:
    with pytest.raises(BadInput, match="cursor"):
        list(client.events(cursor, quiet_seconds=QUIET))


def test_an_open_transaction_holds_back_what_is_behind_it_and_nothing_is_passed_over(
    client: Client, database_url: str, valkey: "Redis"
) -> None:
    client.create("story", "slow", by="ann")
    with closing(block(database_url, client.show("story/slow")["id"])) as slow:
        reading = client.events(quiet_seconds=20.0)
        first = Thread(target=lambda: got.extend(islice(reading, 2)))
        got: list[CommittedEvent] = []
        first.start()
        block_stories(client, "fast")
        carried(client.runtime)
        slow.commit()
    eventually(lambda: carried(client.runtime) or True)
    first.join(30)
    assert [each.entity_id for each in got] == ["slow", "fast"]


async def _read(runtime: AsyncRuntime, count: int) -> list[str]:
    found = []
    async with AsyncClient(runtime) as interlock:
        async for event in interlock.events("0", quiet_seconds=30.0):
            found.append(event.entity_id)
            if len(found) == count:
                break
    return found


def test_an_event_loop_reads_the_same(client: Client, valkey: "Redis") -> None:
    block_stories(client, "S-1", "S-2")
    carried(client.runtime)
    block_stories(client, "S-3")  # in history only
    assert asyncio.run(_read(AsyncRuntime(client.runtime.settings), 3)) == ["S-1", "S-2", "S-3"]


@settings(max_examples=9)
@given(steps=st.lists(st.sampled_from(["move", "carry", "trim", "flush", "drop", "read"]), max_size=12))
def test_whatever_becomes_of_the_stream_each_event_comes_once_in_order(
    client: Client, valkey: "Redis", steps: list[str]
) -> None:
    """Against a list: what was committed since the reader's cursor."""
    seen = list(client.events("0", quiet_seconds=QUIET))
    cursor, made, got = (seen[-1].cursor if seen else "0"), list[str](), list[str]()
    for step in [*steps, "read"]:
        match step:
            case "move":
                made.append(f"{client.project}-{len(seen)}-{len(made)}")
                block_stories(client, made[-1])
            case "carry":
                carried(client.runtime)
            case "trim":
                valkey.xtrim(STREAM, maxlen=1, approximate=False)
            case "flush":
                valkey.flushall()
            case "drop":
                for entry, _ in valkey.xrange(STREAM, count=1):  # type: ignore[union-attr]
                    valkey.xdel(STREAM, entry)
            case "read":
                for event in client.events(cursor, quiet_seconds=QUIET):
                    cursor = event.cursor
                    got.append(event.entity_id)
    assert got == made
