"""The servers themselves go: PostgreSQL at once and without a word, the broker with everything in it."""

import signal

from tests.chaos.installation import Installation
from tests.chaos.promises import assert_promises_kept
from tests.chaos.traffic import Traffic, slow_trigger
from tests.waiting import eventually


def test_immediate_restarts_of_postgresql_lose_nothing(installation: Installation) -> None:
    with Traffic(installation, "pg") as traffic:
        for how in (signal.SIGQUIT, signal.SIGKILL):
            traffic.flows()
            with installation.broken("postgres", how):
                pass
        traffic.flows()
    assert_promises_kept(installation, traffic.accepted)


def test_a_flushed_broker_loses_nothing(installation: Installation) -> None:
    with Traffic(installation, "flush") as traffic, installation.client() as client:
        redis = client.runtime.redis
        assert redis is not None
        for _ in range(6):
            traffic.flows(20)
            redis.flushall()
        traffic.flows()
    assert_promises_kept(installation, traffic.accepted)


def test_a_killed_broker_loses_nothing_and_takes_no_worker_with_it(installation: Installation) -> None:
    restarts = installation.part("triggers1")["restarts"]
    with Traffic(installation, "broker") as traffic, installation.client() as client:
        traffic.flows()
        for number in range(2):
            fired = slow_trigger(client, f"broker-slow-{number}")
            traffic.accepted[fired.request_id] = fired.workflow_id
            eventually(installation.in_transaction)  # its message is not acknowledged yet
            with installation.broken("valkey", signal.SIGKILL):
                pass
            assert client.wait([fired.request_id])[0].status == "applied"
        traffic.flows()
    assert_promises_kept(installation, traffic.accepted)
    assert installation.part("triggers1")["restarts"] == restarts


def test_all_of_it_at_once_loses_nothing(installation: Installation) -> None:
    with Traffic(installation, "storm", agents=3) as traffic, installation.client() as client:
        redis = client.runtime.redis
        assert redis is not None
        traffic.flows()
        with (
            installation.broken("postgres", signal.SIGQUIT),
            installation.broken("triggers1", signal.SIGKILL),
            installation.broken("effects", signal.SIGKILL),
            installation.broken("beat", signal.SIGKILL),
        ):
            redis.flushall()
        traffic.flows()
    assert_promises_kept(installation, traffic.accepted)
