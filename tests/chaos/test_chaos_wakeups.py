"""Wakeups come twice, sweeps come twice, and sweeps stop coming."""

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

from interlock.beat.schedule import OVERDUE_SECONDS
from interlock.workers.client.client import Client
from interlock.workers.operations.checks.processes import check_beat
from tests.chaos.installation import BACK_SECONDS, Installation
from tests.chaos.promises import assert_promises_kept
from tests.chaos.traffic import Traffic, twice
from tests.nodes import node
from tests.waiting import eventually


def _applies_received(client: Client) -> int:
    stats = client.runtime.app.control.inspect(timeout=2).stats() or {}
    return sum(each["total"].get("interlock.apply", 0) for each in stats.values())


def test_every_message_delivered_twice_applies_once(installation: Installation) -> None:
    with installation.client() as client:
        before = _applies_received(client)
        with Traffic(installation, "twice", agents=3, also=twice) as traffic:
            traffic.flows(60)
        # The effects' messages too, each again after it was done.
        for (effect,) in installation.sql("SELECT id::text FROM effects ORDER BY created_at DESC LIMIT 50"):
            client.runtime.app.send_task("interlock.effect", args=[effect])
        assert_promises_kept(installation, traffic.accepted)
        eventually(lambda: _applies_received(client) - before >= 2 * len(traffic.accepted), timeout=BACK_SECONDS)
    assert_promises_kept(installation, traffic.accepted)


@contextlib.contextmanager
def _stopped_beat(installation: Installation) -> Iterator[None]:
    beat = installation.process("beat")
    beat.suspend()
    try:
        yield
    finally:
        beat.resume()


def test_two_beats_are_harmless_and_either_is_enough(installation: Installation, tmp_path: Path) -> None:
    beat = ("beat", "--schedule", str(tmp_path / "schedule"), "--pidfile=")
    with node(installation.settings, tmp_path, *beat) as second, installation.client() as client:
        with Traffic(installation, "beats") as traffic:
            redis = client.runtime.redis
            assert redis is not None
            for _ in range(3):
                traffic.flows(20)
                redis.flushall()  # so that the sweeps have something to find
            with _stopped_beat(installation):
                ticket = client.create("ticket", "beats-dozing")["id"]
                client.wait([client.fire(ticket, trigger, by="ann").request_id for trigger in ("take", "doze")])
                eventually(lambda: client.show(ticket)["current_state"] == "taken", timeout=BACK_SECONDS)
        assert second.ready
    assert_promises_kept(installation, traffic.accepted)


def _beat_is(client: Client, level: str) -> bool:
    return [each.level for each in check_beat(client.runtime)] == [level]


def test_without_beat_wakeups_alone_keep_triggers_flowing_and_the_rest_waits_for_it(
    installation: Installation, tmp_path: Path
) -> None:
    fault = tmp_path / "fault"
    fault.touch()
    with installation.client() as client:
        with _stopped_beat(installation):
            sleeper, sufferer = (client.create("ticket", f"nobeat-{n}")["id"] for n in (1, 2))
            client.fire(sleeper, "take", by="ann")
            client.wait([client.fire(sleeper, "doze", by="ann").request_id])
            retried = client.fire(sufferer, "take", by="ann", data={"broken_while": str(fault)}).request_id
            eventually(lambda: _beat_is(client, "fail"), timeout=2 * OVERDUE_SECONDS, every=1)
            with Traffic(installation, "nobeat") as traffic:
                traffic.flows()
            fault.unlink()
            assert client.show(sleeper)["current_state"] == "dozing"
            assert installation.sql("SELECT status FROM trigger_requests WHERE request_id = %s", retried) == [
                ("scheduled",)
            ]
        assert client.wait([retried])[0].status == "applied"
        eventually(lambda: client.show(sleeper)["current_state"] == "taken", timeout=BACK_SECONDS)
        eventually(lambda: _beat_is(client, "ok"), timeout=BACK_SECONDS, every=1)
    assert_promises_kept(installation, traffic.accepted | {retried: sufferer})


def test_a_killed_beat_comes_back(installation: Installation) -> None:
    with Traffic(installation, "beat") as traffic:
        with installation.broken("beat", signal.SIGKILL):
            traffic.flows()
        traffic.flows()
    assert_promises_kept(installation, traffic.accepted)
