"""Subscriptions: each event at least once, in order, signed; what an endpoint does not take is kept and tried again."""

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Event, Thread
from typing import Any

import psycopg
import pytest

from interlock.workers.client.client import Client
from interlock.workers.operations.metrics import read
from interlock.workers.operations.stuck.detector import survey
from interlock.workers.overrides import subscriptions as changing
from interlock.workers.overrides.at_once import CannotMove
from interlock.workers.overrides.limits import LimitedName, set_limit
from interlock.workers.overrides.subscriptions import NothingToSkip, WantedEvents
from interlock.workers.overrides.transaction import NotAnOperator, OverrideOrder
from interlock.workers.runtime import Runtime
from interlock.workers.subscriptions import outgoing
from interlock.workflows.errors import AlreadyExists, BadInput, NotYours
from tests.archived import approval, archive, expire_timers
from tests.doctoring import examined
from tests.driving import block_stories, drain_all, outcome
from tests.integration.test_relay import block
from tests.listening import answering
from tests.subscribing import ORDER, data, endpoint, entities, received, row, secrets_in, subscribed, swept, turn
from tests.waiting import eventually
from tests.webhooks import Webhook, webhook

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ann")]
Dba = "psycopg.Connection[Any]"
DUE = "UPDATE subscriptions SET next_at = now()"


@pytest.fixture
def runtime(make_runtime: Callable[..., Runtime], tmp_path: Path) -> Runtime:
    """A runtime that has a secret, and may deliver to this host."""
    return make_runtime(secrets=secrets_in(tmp_path / "secrets"), subscription_hosts=("127.0.0.1",))


@pytest.fixture
def dripping() -> Iterator[str]:
    """An endpoint that begins an answer, and gives a byte of it now and then for ever."""
    ended = Event()

    class Dripping(StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
            with suppress(OSError):
                while not ended.wait(0.05):
                    self.wfile.write(b"x")

    with answering(ThreadingTCPServer(("127.0.0.1", 0), Dripping)) as server:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        ended.set()


@pytest.fixture
def client(runtime: Runtime) -> Client:
    return Client(runtime)


def test_events_from_then_on_are_cloud_events_that_others_libraries_verify(client: Client, world: Webhook) -> None:
    block_stories(client, "before")
    subscribed(client.runtime, world, wanted=WantedEvents(types=["story"]))
    block_stories(client, "S 1", "S-2")
    assert turn(client.runtime) == ["s: 2 delivered"]
    first, second = received(world)
    (event,) = client.history("story/S 1")
    assert (first.get_source(), first.get_type()) == ("urn:interlock:default", "interlock.story_state_transition")
    assert (first.get_subject(), first.get_time()) == ("story/S 1", event["created_at"])
    assert str(first.get_extension("sequence")) < str(second.get_extension("sequence"))
    said = data(world)[0]
    assert (said["entity_id"], said["to_state"], said["context"]["seq"]) == ("S 1", "blocked", 1)
    assert said["hash"] == event["hash"].hex()
    assert said.keys().isdisjoint({"proof", "login"})  # a proof may be an open claim's token
    assert turn(client.runtime) == []
    assert row(client.runtime)["delivered"] == 2


@pytest.mark.parametrize(
    ("wanted", "got"),
    [
        (WantedEvents(), {"limit.enforce", "story.block", "story.unblock", "subscription.activate"}),
        (WantedEvents(types=["story"]), {"story.block", "story.unblock"}),
        (WantedEvents(types=["story"], states=["implementation"]), {"story.unblock"}),
        (WantedEvents(triggers=["block", "enforce"]), {"limit.enforce", "story.block"}),
    ],
)
def test_only_what_is_wanted_of_its_own_project_is_delivered(
    client: Client, world: Webhook, wanted: WantedEvents, got: set[str]
) -> None:
    subscribed(client.runtime, world, wanted=wanted)
    block_stories(client, "S")
    client.fire("story/S", "unblock", by="ann")
    block_stories(Client(client.runtime, project="other"), "O")
    set_limit(client.runtime, LimitedName("key", "k"), ORDER, at_once_most=1)
    turn(client.runtime)
    assert {f"{each['entity_type']}.{each['trigger']}" for each in data(world)} == got
    assert {each["context"]["project"] for each in data(world)} == {"default"}
    assert row(client.runtime)["behind_seconds"] == 0


def test_events_of_every_project_are_delivered_only_if_that_is_said(client: Client, world: Webhook) -> None:
    subscribed(client.runtime, world, wanted=WantedEvents(types=["story"], every_project=True))
    block_stories(Client(client.runtime, project="other"), "O")
    block_stories(client, "S")
    turn(client.runtime)
    assert [each.get_source() for each in received(world)] == ["urn:interlock:other", "urn:interlock:default"]


def test_a_transaction_that_began_before_and_commits_after_the_subscription_is_delivered(
    client: Client, world: Webhook, database_url: str
) -> None:
    client.create("story", "slow", by="ann")
    with closing(block(database_url.replace("+psycopg", ""), client.show("story/slow")["id"])) as slow:
        subscribed(client.runtime, world, wanted=WantedEvents(types=["story"]))
        block_stories(client, "fast")
        turn(client.runtime)
        assert entities(world) == []  # what is behind an open transaction waits
        slow.commit()
    turn(client.runtime)
    assert entities(world) == ["slow", "fast"]


def test_what_an_endpoint_refuses_is_kept_and_delivered_in_order_once_it_takes_it(
    client: Client, world: Webhook, dba: Dba
) -> None:
    subscribed(client.runtime, world, wanted=WantedEvents(types=["story"]))
    world.answer, world.body = 503, b"the disk\x1b is full"
    for name in ("S-1", "S-2", "S-3"):
        block_stories(client, name)
        turn(client.runtime)  # not tried again before its time
    found = row(client.runtime)
    assert (found["attempts"], entities(world)) == (1, ["S-1"])
    assert found["answer"] == {
        "status": 503,
        "body": "the disk  is full",
        "error": f"{endpoint(world).rstrip('/')} answered 503",
        "event": received(world)[0].get_id(),
    }
    dba.execute(DUE)
    turn(client.runtime)
    assert row(client.runtime)["attempts"] == 2
    assert row(client.runtime)["failed_at"] == found["failed_at"]
    world.answer = 204
    dba.execute(DUE)
    turn(client.runtime)
    assert entities(world) == ["S-1", "S-1", "S-1", "S-2", "S-3"]
    after = row(client.runtime)
    assert (after["failed_at"], after["attempts"], after["delivered"]) == (None, 0, 3)
    assert (after["answer"] or {})["status"] == 204


def test_one_that_fails_for_long_is_seen_everywhere(client: Client, world: Webhook, dba: Dba) -> None:
    subscribed(client.runtime, world)
    assert examined(client.runtime, "subscriptions")[0].level == "ok"
    world.answer = 500
    block_stories(client, "S")
    turn(client.runtime)
    assert survey(client.runtime, type_="subscription")[0] == 0
    dba.execute("UPDATE subscriptions SET failed_at = now() - interval '10 min'")
    (waits,) = survey(client.runtime, type_="subscription")[1]
    assert "answered 500" in waits.reason
    assert waits.command == "interlock subscription show s --project default"
    (finding,) = examined(client.runtime, "subscriptions")
    assert (finding.level, finding.message[:1]) == ("warn", "1")
    assert read(client.runtime)[("interlock_subscriptions", ("failing",))] == 1
    changing.change_subscription(client.runtime, "s", "pause", ORDER)
    assert survey(client.runtime, type_="subscription")[0] == 0
    assert read(client.runtime)[("interlock_subscriptions", ("paused",))] == 1


def test_one_that_nobody_delivers_is_seen(client: Client, world: Webhook, dba: Dba) -> None:
    subscribed(client.runtime, world)
    block_stories(client, "S")
    dba.execute("UPDATE subscriptions SET next_at = now() - interval '10 min'")
    assert survey(client.runtime, type_="subscription")[0] == 0  # for so long there was nothing to deliver
    dba.execute("SET session_replication_role = replica")
    dba.execute("ALTER TABLE workflow_transitions DISABLE TRIGGER USER")
    dba.execute("UPDATE workflow_transitions SET created_at = created_at - interval '9 min'")
    (waits,) = survey(client.runtime, type_="subscription")[1]
    assert "nobody delivers" in waits.reason
    (finding,) = examined(client.runtime, "subscriptions")
    assert finding.level == "fail"


def test_a_slow_and_a_bad_endpoint_hold_up_neither_each_other_nor_a_good_one(client: Client, world: Webhook) -> None:
    wanted, told = WantedEvents(types=["story"]), list[str]()
    with webhook() as slow:
        slow.before_answering.clear()
        subscribed(client.runtime, slow, "slow", wanted)
        subscribed(client.runtime, Webhook("http://127.0.0.1:9/"), "bad", wanted)
        subscribed(client.runtime, world, "good", wanted)
        block_stories(client, "S-1", "S-2")
        assert swept(client.runtime) == 3
        first = Thread(target=lambda: told.extend(turn(client.runtime)))
        first.start()
        eventually(lambda: slow.received)  # the longest due comes first, and stands there
        told += turn(client.runtime)
        assert entities(world) == ["S-1", "S-2"]
        assert row(client.runtime, "slow")["delivered"] == 0
        slow.before_answering.set()
        first.join(30)
        assert entities(slow) == ["S-1", "S-2"]
    assert {each.split(";")[0] for each in told} >= {"bad: 0 delivered", "good: 2 delivered", "slow: 2 delivered"}
    assert "did not answer" in (row(client.runtime, "bad")["answer"] or {})["error"]


def test_a_worker_that_lost_its_lease_moves_nothing(client: Client, world: Webhook, dba: Dba) -> None:
    subscribed(client.runtime, world, wanted=WantedEvents(types=["story"]))
    block_stories(client, "S-1", "S-2", "S-3")
    before = row(client.runtime)
    world.before_answering.clear()
    told: list[str] = []
    working = Thread(target=lambda: told.extend(turn(client.runtime)))
    working.start()
    eventually(lambda: len(world.received) == 1)
    assert turn(client.runtime) == []  # the other has it
    changing.change_subscription(client.runtime, "s", "pause", ORDER)
    world.before_answering.set()
    working.join(30)
    assert "lease" in told[0]
    assert (row(client.runtime)["position"], row(client.runtime)["delivered"]) == (before["position"], 0)
    changing.change_subscription(client.runtime, "s", "resume", ORDER)
    turn(client.runtime)
    assert entities(world) == ["S-1", "S-1", "S-2", "S-3"]


def test_a_replay_delivers_again_from_an_event_or_a_time_and_never_skips(client: Client, world: Webhook) -> None:
    subscribed(client.runtime, world, wanted=WantedEvents(types=["story"]))
    block_stories(client, "S-1")
    block_stories(client, "S-2", "S-3")
    turn(client.runtime)
    ids = [each.get_id() for each in received(world)]
    going = changing.replay_events(client.runtime, "s", ids[1], ORDER)
    assert (going.events, changing.replayed(client.runtime, going)) == (2, 0)
    turn(client.runtime)
    assert [each.get_id() for each in received(world)] == [*ids, *ids[1:]]
    assert changing.replayed(client.runtime, going) == 2
    with pytest.raises(BadInput, match="no event since"):
        changing.replay_events(client.runtime, "s", datetime.now(UTC) + timedelta(days=1), ORDER)
    changing.replay_events(client.runtime, "s", datetime.now(UTC) - timedelta(days=1), ORDER)
    turn(client.runtime)
    assert [each.get_id() for each in received(world)][5:] == ids
    with pytest.raises(BadInput, match="no event"):
        changing.replay_events(client.runtime, "s", "evt_00000000000000000000000000", ORDER)
    said = client.history("subscription/s")[-1]
    assert (said["trigger"], said["metadata"]["terms"]["types"]) == ("replay", ["story"])


def test_an_event_that_an_endpoint_will_never_take_is_skipped_by_an_operator(
    client: Client, world: Webhook, dba: Dba
) -> None:
    subscribed(client.runtime, world, wanted=WantedEvents(types=["story"]))
    with pytest.raises(NothingToSkip):
        changing.skip_event(client.runtime, "s", ORDER)
    world.answer = 400
    block_stories(client, "S-1", "S-2")
    turn(client.runtime)
    skipped = changing.skip_event(client.runtime, "s", ORDER)
    world.answer = 200
    turn(client.runtime)
    assert (received(world)[0].get_id(), entities(world)) == (skipped, ["S-1", "S-2"])
    assert client.history("subscription/s")[-1]["metadata"]["event"] == skipped


def test_what_is_archived_meanwhile_is_delivered_too(client: Client, world: Webhook, dba: Dba) -> None:
    subscribed(client.runtime, world, wanted=WantedEvents(types=["approval"]))
    changing.change_subscription(client.runtime, "s", "pause", ORDER)
    decided = approval(client, "default", "A-1")
    expire_timers(dba)
    archive(client.runtime)
    assert client.show(decided)["archived_at"] is not None
    changing.change_subscription(client.runtime, "s", "resume", ORDER)
    turn(client.runtime)
    assert [each["trigger"] for each in data(world)] == [each["trigger"] for each in client.history(decided)]


FOREIGN = [
    ({"types": ["stroy"]}, "did you mean story"),
    ({"types": ["story"], "states": ["merged"]}, "no definition has the state merged"),
    ({"triggers": ["explode"]}, "no definition has the trigger explode"),
    ({"types": [7]}, "must be text"),
]


@pytest.mark.parametrize(("filters", "message"), FOREIGN)
def test_filters_that_nothing_has_are_refused(runtime: Runtime, filters: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        changing.subscribe(
            runtime, "s", "https://a.example/", ORDER, secrets=["file:own"], wanted=WantedEvents(**filters)
        )


@pytest.mark.parametrize(
    "url",
    ["http://a.example/", "https://ann:pw@a.example/", "ftp://a.example", "https://", "https://a.example:0/", "/x"],
)
def test_endpoints_that_are_no_https_address_are_refused(runtime: Runtime, url: str) -> None:
    with pytest.raises(BadInput):
        changing.subscribe(runtime, "s", url, ORDER, secrets=["file:own"], wanted=WantedEvents())


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "localhost", "[::1]", "10.0.0.7", "169.254.169.254", "[::ffff:127.0.0.1]"),
        *("[fec0::7]", "[::10.0.0.7]", "[64:ff9b::a00:7]", "100.64.0.7", "0", "2130706433", "0x7f.1", "127.1"),
    ],
)
def test_what_only_our_nodes_reach_is_not_reached_by_naming_it(
    make_runtime: Callable[..., Runtime], tmp_path: Path, host: str
) -> None:
    runtime = make_runtime(secrets=secrets_in(tmp_path / "own"))
    changing.subscribe(runtime, "s", f"https://{host}/", ORDER, secrets=["file:own"], wanted=WantedEvents())
    turn(runtime)
    assert "INTERLOCK_SUBSCRIPTION_HOSTS" in (row(runtime)["answer"] or {})["error"]


def test_redirects_are_not_followed_and_proxies_not_used(
    client: Client, world: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9/")
    subscribed(client.runtime, world, wanted=WantedEvents(types=["story"]))
    block_stories(client, "S")
    world.answer = 302
    turn(client.runtime)
    assert len(world.received) == 1
    assert (row(client.runtime)["answer"] or {})["status"] == 302


def test_an_endpoint_that_drips_its_answer_is_cut(
    client: Client, monkeypatch: pytest.MonkeyPatch, dripping: str
) -> None:
    monkeypatch.setattr(outgoing, "CALL_SECONDS", 0.5)
    changing.subscribe(client.runtime, "s", dripping, ORDER, secrets=["file:own"], wanted=WantedEvents(types=["story"]))
    block_stories(client, "S")
    (told,) = turn(client.runtime)
    assert "did not answer" in told


def test_only_operators_change_subscriptions_and_names_are_used_once(client: Client, world: Webhook) -> None:
    bob = OverrideOrder("bob", "because")
    with pytest.raises(NotAnOperator):
        changing.subscribe(client.runtime, "s", endpoint(world), bob, secrets=["file:own"], wanted=WantedEvents())
    subscribed(client.runtime, world)
    for change in ("pause", "remove"):
        with pytest.raises(NotAnOperator):
            changing.change_subscription(client.runtime, "s", change, bob)  # type: ignore[arg-type]
    with pytest.raises(NotYours):
        client.fire("subscription/s", "remove", by="bob", data={"reason": "because"})
    with pytest.raises(CannotMove):
        changing.change_subscription(client.runtime, "s", "resume", ORDER)
    changing.change_subscription(client.runtime, "s", "remove", ORDER)
    with pytest.raises(AlreadyExists):
        subscribed(client.runtime, world)


FORGED = {
    "a row of its own": "INSERT INTO subscriptions (subscription_id, state, xid, position) "
    "VALUES (gen_random_uuid(), 'active', '0', 0)",
    "another state": "UPDATE subscriptions SET state = 'paused'",
    "its end": "DELETE FROM subscriptions",
    "an earlier place": "UPDATE subscriptions SET xid = '3'",
    "another endpoint": 'UPDATE workflow_instances SET context = context || \'{"url": "https://evil.example/"}\' '
    "WHERE workflow_type = 'subscription'",
}


@pytest.mark.parametrize("statement", FORGED.values(), ids=list(FORGED))
def test_not_even_the_engines_login_writes_what_no_operator_said(
    client: Client, world: Webhook, database_url: str, statement: str
) -> None:
    subscribed(client.runtime, world)
    with (
        psycopg.connect(database_url.replace("+psycopg", "")) as engine,
        pytest.raises(psycopg.errors.IntegrityError),
    ):
        engine.execute(statement)


def test_a_replay_by_hand_that_goes_on_instead_of_back_is_refused(client: Client, world: Webhook) -> None:
    subscribed(client.runtime, world)
    for place in ({"xid": 2**40, "position": 1}, {"xid": "x", "position": 1}, None):
        fired = client.fire(
            "subscription/s", "replay", by="ann", data={"reason": "because", **({"after": place} if place else {})}
        )
        drain_all(client.runtime)
        settled = outcome(client, fired.request_id)
        assert (settled["status"], settled["result"]["code"]) == ("rejected", "judge")
