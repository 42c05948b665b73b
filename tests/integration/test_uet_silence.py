"""Heartbeats of the execution engine's workers: two missed, and they have crashed (UET-1, UET-2)."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import psycopg
import pytest

from interlock.workers.client.client import Client
from interlock.workers.overrides.workers import shut_down
from interlock.workers.pool import registration
from interlock.workers.pool.agent import ShutDown, heartbeat
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import UnknownInstance
from tests.crewing import Site, hand, row, silence, take
from tests.driving import drain_all, state, trail
from tests.rights import OF_SECRET, SECRET, fire, known, operate

pytestmark = pytest.mark.integration
MISSED = 121.0  # two heartbeats of 60 s, and a second
WAYS = {
    "IDLE": ("initialization_complete",),
    "BUSY": ("initialization_complete", "claim"),
    "DRAINING": ("initialization_complete", "claim", "shutdown_requested"),
    "TERMINATED": ("initialization_complete", "shutdown_requested"),
    "SPAWNING": (),
}
Spawn = Callable[[str], UUID]


@pytest.fixture
def spawn(runtime: Runtime, client: Client, site: Site, project: str) -> Spawn:
    """Makes a worker called U, in a state."""

    def do(wanted: str) -> UUID:
        made = UUID(str(client.create("uet_worker", "U", project=project, context=OF_SECRET)["id"]))
        for trigger in WAYS[wanted]:
            if trigger == "claim":
                site.queue(kind="agent")
                take(runtime, made)
                continue
            fire(client, made, trigger, by="engine")
            drain_all(runtime)
        drain_all(runtime)
        assert state(client, made) == wanted
        return made

    return do


@pytest.mark.parametrize("standing", ["IDLE", "BUSY", "DRAINING"])
def test_who_misses_two_heartbeats_has_crashed(
    client: Client, dba: "psycopg.Connection[Any]", spawn: Spawn, sweep: Callable[[], int | None], standing: str
) -> None:
    worker = spawn(standing)
    silence(dba, worker, MISSED - 2, "uet_workers")
    assert sweep() == 0
    assert state(client, worker) == standing
    silence(dba, worker, MISSED, "uet_workers")
    assert sweep() == 1
    assert sweep() == 0
    last = client.history(worker)[-1]
    assert (last["from_state"], last["trigger"], last["to_state"]) == (standing, "worker_crashed", "TERMINATED")
    assert (last["triggered_by"], last["metadata"]["reason"]) == ("heartbeats", "worker U fell silent")
    assert row(dba, "uet_workers", worker)["terminated_at"] == last["created_at"]


@pytest.mark.parametrize("standing", ["SPAWNING", "TERMINATED"])
def test_nobody_waits_for_one_that_owes_no_heartbeat(
    client: Client, dba: "psycopg.Connection[Any]", spawn: Spawn, sweep: Callable[[], int | None], standing: str
) -> None:
    worker = spawn(standing)
    silence(dba, worker, 100 * MISSED, "uet_workers")
    assert sweep() == 0
    assert state(client, worker) == standing


def test_heartbeats_are_owed_from_idle_on_however_long_it_was_spawning(
    runtime: Runtime, client: Client, dba: "psycopg.Connection[Any]", spawn: Spawn, sweep: Callable[[], int | None]
) -> None:
    worker = spawn("SPAWNING")
    silence(dba, worker, 10 * MISSED, "uet_workers")
    fire(client, worker, "initialization_complete", by="engine")
    drain_all(runtime)
    assert sweep() == 0
    assert state(client, worker) == "IDLE"


def test_one_that_is_heard_of_stays_and_its_instance_is_not_touched(
    runtime: Runtime, client: Client, dba: "psycopg.Connection[Any]", spawn: Spawn, sweep: Callable[[], int | None]
) -> None:
    worker, other = spawn("BUSY"), hand(runtime)
    silence(dba, worker, MISSED, "uet_workers")
    before = client.show(worker)["updated_at"]
    assert heartbeat("U", secret=SECRET, runtime=runtime) == "BUSY"
    assert heartbeat(str(worker), secret=SECRET, runtime=runtime) == "BUSY"
    assert heartbeat("hand", secret=known(other).secret, runtime=runtime) == "idle"
    assert registration.heartbeat(runtime, [known(worker), known(other)]).keys() == {worker, other}
    assert sweep() == 0
    assert client.show(worker)["updated_at"] == before
    assert trail(client, worker) == ["initialization_complete", "task_assigned"]


def test_one_that_has_ended_is_told_so_and_who_is_no_worker_too(
    runtime: Runtime, client: Client, project: str, spawn: Spawn
) -> None:
    spawn("TERMINATED")
    with pytest.raises(ShutDown, match="'U' is shut down"):
        heartbeat("U", secret=SECRET, runtime=runtime)
    client.create("story", "S-1", project=project)
    for name in ("S-1", "nobody"):
        with pytest.raises(UnknownInstance, match=f"no worker is called '{name}'"):
            heartbeat(name, secret=SECRET, runtime=runtime)


@pytest.mark.parametrize(("standing", "left", "to"), [("SPAWNING", 0, "TERMINATED"), ("BUSY", 1, "DRAINING")])
def test_an_operator_or_the_worker_itself_shuts_it_down(
    runtime: Runtime, client: Client, spawn: Spawn, standing: str, left: int, to: str
) -> None:
    operate(runtime, "ann")
    worker, why = spawn(standing), {"by": "ann", "reason": "enough"}
    if standing == "BUSY":
        assert shut_down(runtime, "U", by="U", secret=SECRET) == left
        drain_all(runtime)
        assert trail(client, worker)[-1] == "shutdown_requested"
    assert shut_down(runtime, "U", **why) == left  # said again, it changes nothing
    drain_all(runtime)
    assert state(client, worker) == to
