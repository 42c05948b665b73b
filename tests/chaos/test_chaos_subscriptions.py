"""Workers are killed while they deliver, endpoints go down, Valkey is emptied: no event is lost, none out of order."""

import signal
import threading
from collections import defaultdict
from contextlib import ExitStack

from interlock import Client, CommittedEvent
from interlock.workers.overrides.subscriptions import WantedEvents, subscribe
from tests.chaos.installation import BACK_SECONDS, Installation
from tests.chaos.traffic import Traffic
from tests.rights import operate
from tests.subscribing import ORDER, data, endpoint, firsts, from_then_on
from tests.waiting import eventually
from tests.webhooks import Webhook, webhook

WANTED = WantedEvents(types=["story", "pr_review", "ticket"], every_project=True)


def test_each_event_is_delivered_in_order_whatever_is_killed_and_a_reader_misses_none(
    installation: Installation,
) -> None:
    read: list[CommittedEvent] = []
    ended = threading.Event()

    def reading() -> None:
        with installation.client() as mine:
            cursor = None
            while not ended.is_set():
                for event in mine.events(cursor, every_project=True, types=WANTED.types, quiet_seconds=1.0):
                    cursor = event.cursor
                    read.append(event)

    with ExitStack() as ending, installation.client() as client, webhook() as world, webhook() as stalled:
        operate(client.runtime, "ann")
        for name, each in (("kept", world), ("stalled", stalled)):
            subscribe(client.runtime, name, endpoint(each), ORDER, secrets=["file:own"], wanted=WANTED)
        stalled.answer = 503  # all the time: it holds up nothing
        reader = threading.Thread(target=reading)
        reader.start()
        ending.callback(reader.join, BACK_SECONDS)
        ending.callback(ended.set)
        with Traffic(installation, "subscribed") as traffic:
            traffic.flows()
            world.before_answering.clear()  # a delivery is under way
            eventually(lambda: world.received)
            with installation.broken("deliveries", signal.SIGKILL):
                world.before_answering.set()
                traffic.flows()
            world.answer = 500
            redis = client.runtime.redis
            assert redis is not None
            for _ in range(3):
                traffic.flows(20)
                redis.flushall()
            world.answer = 200
            with installation.broken("valkey", signal.SIGKILL):
                traffic.flows(20)
        eventually(lambda: _settled(installation), timeout=BACK_SECONDS)
        patience = _backs_off(installation) + BACK_SECONDS
        expected = eventually(lambda: _all_of(client, world), timeout=patience, every=0.5)
        eventually(lambda: {each.event_id for each in read} >= set(expected), timeout=BACK_SECONDS, every=0.5)
        assert len(stalled.received) > 1
    ids = [each.event_id for each in read]
    assert len(ids) == len(set(ids))
    assert [each for each in ids if each in set(expected)] == expected
    by_instance = defaultdict(list)
    for each in data(world):
        by_instance[each["context"]["workflow_id"]].append(each["context"]["seq"])
    for seqs in by_instance.values():
        assert list(dict.fromkeys(seqs)) == sorted(set(seqs))


def _all_of(client: Client, world: Webhook) -> list[str]:
    """All events up to now, if an endpoint got them in order. A ticket that dozes wakes after the traffic ended."""
    expected = from_then_on(client.runtime, "kept", *WANTED.types)
    return expected if firsts(world) == expected else []


def _backs_off(installation: Installation) -> float:
    """The seconds until the last subscription is tried again: the longer its endpoint was down, the more."""
    ((seconds,),) = installation.sql("SELECT extract(epoch FROM max(next_at) - now())::float8 FROM subscriptions")
    return max(0.0, seconds)


def _settled(installation: Installation) -> bool:
    """Whether no trigger is under way."""
    return installation.sql("SELECT count(*) FROM trigger_requests WHERE status = 'pending'") == [(0,)]
