"""Workers are killed at the worst moments."""

import signal

import pytest

from tests.chaos.installation import LEASE_SECONDS, Installation
from tests.chaos.promises import assert_promises_kept
from tests.chaos.traffic import Traffic, slow_trigger
from tests.waiting import eventually


def test_a_node_killed_in_mid_transaction_leaves_its_trigger_to_another(installation: Installation) -> None:
    with Traffic(installation, "midtx") as traffic, installation.client() as client:
        traffic.flows()
        for number in range(3):
            fired = slow_trigger(client, f"midtx-slow-{number}")
            traffic.accepted[fired.request_id] = fired.workflow_id
            installation.process(eventually(installation.in_transaction)).kill()
            assert client.wait([fired.request_id])[0].status == "applied"
        traffic.flows()
    assert_promises_kept(installation, traffic.accepted)


def test_a_killed_worker_node_comes_back_and_takes_up_its_work(installation: Installation) -> None:
    with Traffic(installation, "node") as traffic, installation.client() as client:
        traffic.flows()
        fired = slow_trigger(client, "node-slow")
        at_it = eventually(installation.in_transaction)
        with installation.broken(at_it, signal.SIGKILL):
            pass
        assert client.wait([fired.request_id], timeout_seconds=60)[0].status == "applied"
        traffic.flows()
    assert_promises_kept(installation, traffic.accepted | {fired.request_id: fired.workflow_id})


def _telling(installation: Installation, name: str) -> str:
    """A ticket that tells the world; the request that makes it."""
    with installation.client() as client:
        ticket = client.create("ticket", name)
        client.fire(ticket["id"], "take", by="ann")
        return client.fire(ticket["id"], "tell", by="ann").request_id


@pytest.mark.parametrize("victim", ["pool process", "node"])
def test_a_worker_killed_in_mid_effect_loses_its_lease_to_another(installation: Installation, victim: str) -> None:
    name = f"mideffect-{victim.replace(' ', '-')}"
    with Traffic(installation, name) as traffic, installation.receiver.stalling(f"{name}-told"):
        traffic.flows()
        _telling(installation, f"{name}-told")
        first = eventually(lambda: installation.receiver.about(f"{name}-told"))[0]
        if victim == "node":
            with installation.broken("effects", signal.SIGKILL):
                pass
        else:
            installation.sending(first.port).kill()
        again = eventually(lambda: installation.receiver.about(f"{name}-told")[1:], timeout=60)[0]
        assert (again.effect, again.token) == (first.effect, first.token + 1)
        traffic.flows()
    assert_promises_kept(installation, traffic.accepted)


def test_a_worker_that_wakes_after_its_lease_ran_out_cannot_report(installation: Installation) -> None:
    with Traffic(installation, "zombie") as traffic, installation.receiver.stalling("zombie-told") as gate:
        _telling(installation, "zombie-told")
        first = eventually(lambda: installation.receiver.about("zombie-told"))[0]
        zombie = installation.sending(first.port)
        zombie.suspend()
        try:
            again = eventually(lambda: installation.receiver.about("zombie-told")[1:], timeout=60)[0]
            assert again.token == first.token + 1
            told = "SELECT status, token FROM effects WHERE id = %s"
            eventually(lambda: installation.sql(told, first.effect) == [("done", again.token)])
            gate.set()  # the answer to the first notice is there when the zombie wakes
        finally:
            zombie.resume()
        log = installation.home.log("effects")
        eventually(lambda: f"token {first.token}" in _stale(log.read_text(), first.effect), timeout=4 * LEASE_SECONDS)
        traffic.flows()
    assert_promises_kept(installation, traffic.accepted)


def _stale(log: str, effect: str) -> str:
    return "\n".join(line for line in log.splitlines() if "stale_lease" in line and effect in line)
