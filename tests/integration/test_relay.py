"""The relay: every event, in commit order, at least once in reading and once in the stream."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any
from uuid import UUID

import psycopg
import pytest
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from sqlalchemy import Connection, RowMapping
from uuid_utils.compat import uuid7

from interlock.workers import sweeps
from interlock.workers.broker.event_stream import STREAM
from interlock.workers.client.client import Client
from interlock.workers.engine.trigger_request import Firing
from interlock.workers.relay.destinations import destinations
from interlock.workers.relay.redis_stream import Stream
from interlock.workers.relay.relay import Destination, relay
from interlock.workers.runtime import Runtime
from interlock.workflows.audit.ids import event_name
from tests.doctoring import examined
from tests.driving import UP_TO_REVIEW, applied, drain_all
from tests.rights import ASKED
from tests.waiting import eventually

pytestmark = pytest.mark.integration

BLOCK = f"""
WITH {ASKED}, moved AS (
    UPDATE workflow_instances SET current_state = 'blocked', version = 1 WHERE id = %(id)s RETURNING version
)
INSERT INTO workflow_transitions (id, workflow_id, seq, definition_version, from_state, to_state, trigger, triggered_by,
                                  request_id)
SELECT gen_random_uuid(), %(id)s, version, '1.0.0', 'analysis', 'blocked', 'block', 'dba', request_id
  FROM moved, asked"""


def carried(runtime: Runtime, maxlen: int = 1_000) -> int:
    assert runtime.redis is not None
    return relay(runtime.database, [Stream(runtime.redis, maxlen=maxlen)])


def stream(valkey: "Redis") -> list[str]:
    """The entities whose events are in the stream, in its order."""
    return [fields["entity_id"] for _, fields in valkey.xrange(STREAM)]  # type: ignore[union-attr]


def block(url: str, story: UUID) -> "psycopg.Connection[Any]":
    """A transaction that has taken its place in history and is not committed yet."""
    connection = psycopg.connect(url)
    connection.execute(BLOCK, {"id": story, "trigger": "block"})
    return connection


@contextmanager
def overtaken(url: str, stories: list[UUID]) -> Iterator["psycopg.Connection[Any]"]:
    """A transaction that is still open, though one that took its place in history later has committed."""
    with closing(block(url, stories[0])) as slow, closing(block(url, stories[1])) as fast:
        fast.commit()
        yield slow


def test_an_event_is_carried_with_all_that_it_says(client: Client, stories: list[UUID], valkey: "Redis") -> None:
    client.fire(stories[0], "block", by="ann", request_id="r-1", data={"why": "ü"})
    drain_all(client.runtime)
    assert carried(client.runtime) == 1
    (event,) = client.history(stories[0])
    ((entry_id, fields),) = valkey.xrange(STREAM)  # type: ignore[misc]
    assert entry_id == f"{event['xid']}-{event['position']}"
    assert fields == {
        "event_id": event_name(event["id"]),
        "workflow_id": str(stories[0]),
        "type": "story",
        "entity_id": "S-0",
        "project": str(client.show(stories[0])["project"]),
        "seq": "1",
        "from_state": "analysis",
        "to_state": "blocked",
        "trigger": "block",
        "named_event": "",
        "triggered_by": "ann",
        "request_id": "r-1",
        "severity": "warning",
        "metadata": '{"why": "\\u00fc"}',
        "created_at": event["created_at"].isoformat(),
        "after": "0-0",
    }


def test_transactions_that_commit_out_of_order_are_carried_in_order_and_none_is_skipped(
    client: Client, stories: list[UUID], database_url: str, valkey: "Redis"
) -> None:
    with overtaken(database_url, stories) as slow:
        assert carried(client.runtime) == 0  # something may still appear before it
        slow.commit()
        assert carried(client.runtime) == 2
        assert stream(valkey) == ["S-0", "S-1"]


def test_a_transaction_rolled_back_holds_up_and_leaves_nothing(
    client: Client, stories: list[UUID], database_url: str, valkey: "Redis"
) -> None:
    with overtaken(database_url, stories) as slow:
        slow.rollback()
        assert carried(client.runtime) == 1
        assert stream(valkey) == ["S-1"]


def test_an_older_transaction_that_writes_late_is_not_behind_the_cursor(
    client: Client, stories: list[UUID], database_url: str, valkey: "Redis"
) -> None:
    old = psycopg.connect(database_url)
    old.execute("SELECT pg_current_xact_id()")
    fast = block(database_url, stories[1])
    fast.commit()
    carried(client.runtime)
    old.execute(BLOCK, {"id": stories[0], "trigger": "block"})  # a smaller transaction id at a greater position
    old.commit()
    assert carried(client.runtime) >= 1
    assert sorted(stream(valkey)) == ["S-0", "S-1"]
    old.close()
    fast.close()


def test_a_lost_cursor_update_adds_nothing_twice(
    client: Client, stories: list[UUID], dba: "psycopg.Connection[Any]", valkey: "Redis"
) -> None:
    applied(client, stories[0], *UP_TO_REVIEW)
    assert carried(client.runtime) == 3
    before = valkey.xrange(STREAM)
    dba.execute("UPDATE relay_cursors SET xid = '0', position = 0")  # it died between the two
    client.fire(stories[1], "block", by="a")
    drain_all(client.runtime)
    assert carried(client.runtime) == 4
    assert valkey.xrange(STREAM)[:3] == before  # type: ignore[index]
    assert stream(valkey) == ["S-0"] * 3 + ["S-1"]


def test_a_flushed_broker_gets_what_comes_after_and_no_relay_fails(
    client: Client, stories: list[UUID], valkey: "Redis"
) -> None:
    applied(client, stories[0], "block")
    carried(client.runtime)
    valkey.flushall()
    applied(client, stories[1], "block")
    assert carried(client.runtime) == 1
    assert stream(valkey) == ["S-1"]


def test_the_cursor_does_not_move_past_what_redis_confirmed(
    client: Client, stories: list[UUID], make_runtime: Callable[..., Runtime], valkey: "Redis"
) -> None:
    applied(client, stories[0], "block")
    away = make_runtime(redis_url="redis://127.0.0.1:1/0")
    with pytest.raises(RedisConnectionError):
        carried(away)
    assert carried(client.runtime) == 1
    assert stream(valkey) == ["S-0"]


def test_more_than_a_batch_is_carried_in_one_call_and_the_stream_is_capped(
    client: Client, stories: list[UUID], valkey: "Redis"
) -> None:
    applied(client, stories[0], *UP_TO_REVIEW)
    rounds = [Firing(stories[0], ("request_changes", "submit_pr")[number % 2], "a") for number in range(1_200)]
    client.fire_many(rounds)
    drain_all(client.runtime)
    assert carried(client.runtime, maxlen=100) == 1_203
    assert 100 <= int(valkey.xlen(STREAM)) < 400
    assert carried(client.runtime) == 0


def test_the_order_within_an_instance_is_its_historys(client: Client, stories: list[UUID], valkey: "Redis") -> None:
    for story in stories:
        client.fire_many([Firing(story, trigger, "a") for trigger in UP_TO_REVIEW])
    drain_all(client.runtime)
    assert carried(client.runtime) == 15
    seen: dict[str, list[str]] = {}
    for _, fields in valkey.xrange(STREAM):  # type: ignore[union-attr]
        seen.setdefault(fields["entity_id"], []).append(fields["seq"])
    assert set(map(tuple, seen.values())) == {("1", "2", "3")}


def test_history_of_nobody_is_no_reason_to_stop(client: Client) -> None:
    assert carried(client.runtime) == 0
    assert client.create("story", "S-9", project=uuid7())["version"] == 0


class Collected(Destination):
    """Keeps what it is given, unless it is told to fail, or that it already has something."""

    def __init__(self, name: str, *, fails: bool = False, has: tuple[int, int] | None = None) -> None:
        self.name, self.fails, self.has = name, fails, has
        self.seen: list[str] = []
        self.closed = False

    def position(self, connection: Connection, cursor: tuple[int, int]) -> tuple[int, int]:
        return self.has or cursor

    def carry(self, connection: Connection, events: Sequence[RowMapping]) -> None:
        if self.fails:
            raise OSError("disk full")
        self.seen += [event["entity_id"] for event in events]

    def close(self) -> None:
        self.closed = True


def test_a_destination_that_fails_holds_up_no_other_and_loses_nothing(client: Client, stories: list[UUID]) -> None:
    applied(client, stories[0], "block")
    broken, sound = Collected("broken", fails=True), Collected("sound")
    with pytest.raises(OSError, match="disk full"):
        relay(client.runtime.database, [broken, sound])
    assert sound.seen == ["S-0"]
    assert broken.closed
    broken.fails = False
    applied(client, stories[1], "block")
    assert relay(client.runtime.database, [sound, broken]) == 2
    assert (sound.seen, broken.seen) == (["S-0", "S-1"], ["S-0", "S-1"])


def test_a_destination_says_itself_where_it_stands(client: Client, stories: list[UUID]) -> None:
    applied(client, stories[0], "block")
    (event,) = client.history(stories[0])
    ahead = Collected("ahead", has=(int(event["xid"]), event["position"]))  # it was killed before its cursor moved
    assert relay(client.runtime.database, [ahead]) == 0
    assert ahead.seen == []


def test_the_doctor_names_the_destination_that_is_late(
    make_runtime: Callable[..., Runtime], stories: list[UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = make_runtime(journal=False)

    def finding() -> tuple[str, str]:
        return next((each.level, each.message) for each in examined(runtime, "relay"))

    assert finding()[0] == "ok"
    applied(Client(runtime), stories[0], "block")
    sweeps.SWEEPS["relay"](runtime)
    applied(Client(runtime), stories[0], "unblock")
    relay(runtime.database, [each for each in destinations(runtime) if each.name != STREAM])
    monkeypatch.setattr("interlock.workers.operations.checks.requests.LATE_SECONDS", 0.0)
    eventually(lambda: f"{STREAM} 0.0 s" not in finding()[1])
    level, says = finding()
    assert level == "warn"
    assert "metrics 0.0 s" in says
    assert "journal" not in says
