"""Heartbeats and silence: who is not heard of is relieved in time, comes back fenced off, and is given up at last."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import psycopg
import pytest

from interlock.beat import sweeps
from interlock.db.connection import transaction
from interlock.workers.client.client import Client
from interlock.workers.operations import doctor
from interlock.workers.pool import claims, registration, work_loop
from interlock.workers.pool.celery_pool import HeartbeatSender
from interlock.workers.pool.claims import StaleClaim
from interlock.workers.pool.registration import WorkerDescription, heartbeat, register
from interlock.workers.pool.report import Report
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import AlreadyExists, BadInput
from tests.crewing import Site, hand, row, silence, take
from tests.doctoring import examined
from tests.driving import drain_all, make_due, state, swept, trail
from tests.rights import fire, known

pytestmark = pytest.mark.integration
MISSED, GONE = 121.0, 301.0  # WORKER-7, WORKER-9: two heartbeats of 60 s; five minutes
DONE = Report("execution_completed", {"exit_code": 0})


@pytest.fixture
def sweep(runtime: Runtime, dba: "psycopg.Connection[Any]") -> Callable[[], None]:
    def run() -> None:
        dba.execute("DELETE FROM sweeps")
        swept(runtime, "heartbeats")
        drain_all(runtime)

    return run


def spared_until(
    seconds: float, client: Client, dba: "psycopg.Connection[Any]", worker: UUID, sweep: Callable[[], None]
) -> None:
    """Let a worker be silent for a little less, which changes nothing, and then for so many seconds."""
    before = state(client, worker)
    silence(dba, worker, seconds - 2)
    sweep()
    assert state(client, worker) == before
    silence(dba, worker, seconds)
    sweep()


def test_a_silent_busy_worker_is_unresponsive_and_its_task_is_tried_again(
    runtime: Runtime, client: Client, site: Site, dba: "psycopg.Connection[Any]", sweep: Callable[[], None]
) -> None:
    (task,) = site.queue()
    worker = hand(runtime, "W")
    claim = claims.take(runtime, known(worker))
    assert claim is not None
    drain_all(runtime)
    spared_until(MISSED, client, dba, worker, sweep)
    assert (state(client, worker), state(client, task)) == ("unresponsive", "retrying")
    assert row(dba, "tasks", task)["last_error"] == "worker W fell silent"
    said = client.history(worker)[-1]["metadata"]
    assert said["heartbeat_status"] == "silent"
    assert said["last_heartbeat_age_seconds"] >= MISSED
    with pytest.raises(StaleClaim):
        claims.finish(runtime, known(worker), claim.token, DONE)


def test_a_task_without_retries_fails_with_its_worker(
    runtime: Runtime, client: Client, site: Site, dba: "psycopg.Connection[Any]", sweep: Callable[[], None]
) -> None:
    (task,) = site.queue(1, max_retries=0)
    worker = hand(runtime)
    take(runtime, worker)
    silence(dba, worker, MISSED)
    sweep()
    assert state(client, task) == "failed"


def test_a_worker_heard_of_again_recovers_and_works_on(
    runtime: Runtime, client: Client, site: Site, dba: "psycopg.Connection[Any]", sweep: Callable[[], None]
) -> None:
    (task,) = site.queue()
    worker = hand(runtime)
    take(runtime, worker)
    silence(dba, worker, MISSED)
    sweep()
    assert heartbeat(runtime, [known(worker)])[worker]["state"] == "unresponsive"
    drain_all(runtime)
    assert state(client, worker) == "idle"
    make_due(dba, "retry_delay_elapsed")
    dba.execute("UPDATE trigger_requests SET status = 'pending' WHERE status = 'scheduled' AND not_before <= now()")
    drain_all(runtime)
    again = claims.take(runtime, known(worker))
    assert again is not None
    assert again.task_id == task
    assert trail(client, worker)[2:4] == ["health_check_timeout", "health_check_recovered"]


def test_an_unresponsive_worker_is_shut_down_after_five_minutes(
    runtime: Runtime, client: Client, site: Site, dba: "psycopg.Connection[Any]", sweep: Callable[[], None]
) -> None:
    site.queue()
    worker = hand(runtime)
    take(runtime, worker)
    silence(dba, worker, MISSED)
    sweep()
    sweep()
    assert state(client, worker) == "unresponsive"
    silence(dba, worker, GONE)
    sweep()
    assert state(client, worker) == "shutdown"
    assert row(dba, "workers", worker)["current_load"] == 0
    assert dba.execute("SELECT count(*) FROM task_claims WHERE ended_at IS NULL").fetchone() == (0,)


def test_an_idle_worker_is_never_unresponsive_but_shut_down_after_five_minutes(
    runtime: Runtime, client: Client, dba: "psycopg.Connection[Any]", sweep: Callable[[], None]
) -> None:
    """WORKER-9."""
    worker = hand(runtime)
    spared_until(GONE, client, dba, worker, sweep)
    assert trail(client, worker) == ["registration_complete", "max_timeout_exceeded"]


def test_a_suspended_worker_that_fell_silent_is_shut_down(
    runtime: Runtime, client: Client, dba: "psycopg.Connection[Any]", sweep: Callable[[], None]
) -> None:
    worker = hand(runtime)
    fire(client, worker, "suspend", by="ann")
    drain_all(runtime)
    spared_until(GONE, client, dba, worker, sweep)
    assert trail(client, worker) == ["registration_complete", "suspend", "max_timeout_exceeded"]


@pytest.mark.parametrize("standing", ["idle", "suspended"])
@pytest.mark.promise("O6")
def test_whoever_holds_a_claim_is_watched_like_a_busy_worker(
    runtime: Runtime,
    client: Client,
    site: Site,
    dba: "psycopg.Connection[Any]",
    sweep: Callable[[], None],
    standing: str,
) -> None:
    (task,) = site.queue()
    worker = hand(runtime, max_concurrent_tasks=2)
    claim = claims.take(runtime, known(worker))
    assert claim is not None
    if standing == "suspended":
        fire(client, worker, "suspend", by="ann")
    drain_all(runtime)
    spared_until(MISSED, client, dba, worker, sweep)
    assert (state(client, worker), state(client, task)) == (standing, "retrying"), "WORKER-14"
    assert row(dba, "workers", worker)["current_load"] == 0
    with pytest.raises(StaleClaim):
        claims.finish(runtime, known(worker), claim.token, DONE)
    sweep()
    silence(dba, worker, GONE)
    sweep()
    assert trail(client, worker)[-1] == "max_timeout_exceeded"
    assert [each["trigger"] for each in client.history(task)].count("execution_failed") == 1


@pytest.mark.parametrize("room", [1, 2])
def test_a_draining_worker_that_falls_silent_is_shut_down_with_its_tasks_given_back(
    runtime: Runtime, client: Client, site: Site, dba: "psycopg.Connection[Any]", sweep: Callable[[], None], room: int
) -> None:
    (task,) = site.queue()
    worker = hand(runtime, max_concurrent_tasks=room)
    claims.take(runtime, known(worker))
    assert registration.drain(runtime, known(worker)) == 1
    drain_all(runtime)
    silence(dba, worker, MISSED)
    sweep()
    assert (state(client, worker), state(client, task)) == ("shutdown", "retrying")


def test_heartbeats_touch_no_instance_and_revive_nobody(
    runtime: Runtime, client: Client, dba: "psycopg.Connection[Any]"
) -> None:
    alive, gone = hand(runtime, "alive"), hand(runtime, "gone")
    registration.leave(runtime, known(gone), "left")
    drain_all(runtime)
    silence(dba, alive, 50.0)
    before = [client.show(each)["updated_at"] for each in (alive, gone)]
    assert heartbeat(runtime, [known(alive), known(gone)]).keys() == {alive}
    assert row(dba, "workers", alive)["last_heartbeat"] > before[0]
    assert [client.show(each)["updated_at"] for each in (alive, gone)] == before
    assert state(client, gone) == "shutdown"


def test_a_process_that_was_given_up_enlists_anew_but_not_one_that_was_dismissed(
    runtime: Runtime, client: Client, dba: "psycopg.Connection[Any]", sweep: Callable[[], None]
) -> None:
    pulse = HeartbeatSender(runtime, WorkerDescription("P", ()))
    pulse.beat()
    registered = pulse.registered(0)
    assert registered is not None
    first = registered.worker_id
    silence(dba, first, GONE)
    sweep()
    pulse.beat()
    registered = pulse.registered(0)
    assert registered is not None
    second = registered.worker_id
    assert (state(client, first), state(client, second)) == ("shutdown", "idle")
    assert row(dba, "workers", second)["name"] == "P#1"
    registration.drain(runtime, registered)
    drain_all(runtime)
    for _ in range(2):
        pulse.beat()
        assert pulse.registered(0) is None


def test_a_name_is_free_again_once_its_bearer_is_shut_down(runtime: Runtime) -> None:
    first = hand(runtime, "name")
    with pytest.raises(AlreadyExists, match="'name' is idle already"):
        hand(runtime, "name")
    registration.leave(runtime, known(first), "left")
    drain_all(runtime)
    second = hand(runtime, "name")
    assert registration.find(runtime, "name")["worker_id"] == second


@pytest.mark.parametrize(
    "said",
    [
        {"name": ""},
        {"name": "a#1"},
        {"name": "n" * 91},
        {"affinity": {"workstreams": "ws"}},
        {"affinity": {"phases": "x"}},
    ],
    ids=str,
)
def test_who_cannot_be_a_worker_is_refused(runtime: Runtime, said: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        register(runtime, WorkerDescription(**({"name": "N", "capabilities": ()} | said)))


def test_a_shift_gives_back_what_a_fault_left_in_its_hands(
    runtime: Runtime, client: Client, site: Site, dba: "psycopg.Connection[Any]"
) -> None:
    lost, other = site.queue(2)
    worker = hand(runtime, "W")
    take(runtime, worker)  # and then a fault
    assert work_loop.work(runtime, known(worker)) == 1
    drain_all(runtime)
    assert (state(client, lost), state(client, other)) == ("retrying", "completed")
    assert (state(client, worker), row(dba, "workers", worker)["current_load"]) == ("idle", 0)


# Liveness -------------------------------------------------------------------------------------------------------


def crew_says(runtime: Runtime) -> list[str]:
    return [each.message for each in examined(runtime, "crew") if each.level != "ok"]


def test_a_worker_that_answers_but_takes_nothing_is_reported(
    make_runtime: Callable[..., Runtime], site: Site, dba: "psycopg.Connection[Any]"
) -> None:
    runtime = make_runtime(starving_seconds=30.0)
    stuck = hand(runtime, "stuck")
    hand(runtime, "unfit", capabilities=())
    hand(runtime, "fresh")
    site.queue(1, required_capabilities=["python"])
    assert crew_says(runtime) == []
    dba.execute("UPDATE workers SET created_at = now() - interval '40 s' WHERE name <> 'fresh'")
    assert crew_says(runtime) == [], "it has not waited long"
    dba.execute("UPDATE workflow_instances SET updated_at = now() - interval '31 s' WHERE workflow_type = 'task'")
    (said,) = crew_says(runtime)
    assert said.startswith("worker stuck is alive but claims no task: T-")
    silence(dba, stuck, 200.0)
    assert crew_says(runtime) == [], "silence is another matter"


def test_tasks_that_nobody_could_ever_take_are_reported_with_what_is_wanting(
    runtime: Runtime, site: Site, dba: "psycopg.Connection[Any]"
) -> None:
    def says() -> set[str]:
        return {each.partition(" s: ")[2] for each in crew_says(runtime)}

    site.queue(3, required_capabilities=["python", "gpu", "cuda"])
    site.queue(1, kind="agent")
    site.task(site.workstream(site.run(), affinity=["chosen"]))
    site.queue(1, affinity=["chosen"])
    site.task(site.workstream(site.run(), name="fine"))
    assert crew_says(runtime) == [], "they have only just been queued"
    dba.execute("UPDATE workflow_instances SET updated_at = now() - interval '11 s' WHERE workflow_type = 'task'")
    assert says() == {"no worker process is registered", "no agent is registered"}
    hand(runtime, "picky", affinity={"workstreams": ["elsewhere"]})
    affinity = "no worker offers all its capabilities and is allowed by its affinity"
    assert says() == {"no worker offers cuda, gpu", "no agent is registered", affinity}
    hand(runtime)
    (gpu,) = [each for each in crew_says(runtime) if "cuda" in each]
    assert gpu.startswith("no worker can run T-")
    assert " (and 2 more), queued for " in gpu
    assert sum(affinity in each for each in crew_says(runtime)) == 2, "the workstream's, and the task's own"
    assert says() == {"no worker offers cuda, gpu", "no agent is registered", affinity}
    hand(runtime, "chosen")
    register(runtime, WorkerDescription("agent", ("interlock:agent",)))
    for half in ("gpu", "cuda"):
        hand(runtime, half, capabilities=("python", half))
    assert says() == {affinity}, "each offers a part of it"
    last = hand(runtime, "whole", capabilities=("python", "gpu", "cuda"))
    assert says() == set()
    registration.drain(runtime, known(last))
    (told,) = crew_says(runtime)
    assert affinity in told
    assert [each.check for each in doctor.examine(runtime) if affinity in each.message] == ["crew"]


Free = Callable[[], int]


@pytest.fixture
def free(runtime: Runtime) -> Free:
    """Counts the free workers that fit a waiting task, as the sweep does."""

    def count() -> int:
        with transaction(runtime.database) as connection:
            return sweeps.dispatch(connection, silent_seconds=runtime.settings.silent_seconds).free_workers

    return count


def test_dispatch_counts_free_hands_that_fit(runtime: Runtime, site: Site, free: Free) -> None:
    hands = [hand(runtime, f"W{number}") for number in range(3)]
    assert free() == 0
    site.queue(2, required_capabilities=["python"])
    site.queue(1, kind="agent")
    site.queue(1, required_capabilities=["gpu"])
    assert free() == 2
    claims.take(runtime, known(hands[0]))
    assert free() == 1
    claims.take(runtime, known(hands[1]))
    assert free() == 0


def test_dispatch_sends_nobody_to_tasks_that_affinity_keeps_for_others(
    runtime: Runtime, site: Site, free: Free
) -> None:
    workstream = site.workstream(site.run(), affinity=["chosen"])
    (kept,) = site.tasks(workstream)
    site.task(workstream, affinity=["special"])
    hand(runtime, "other")
    assert free() == 0
    chosen = hand(runtime, "chosen")
    assert free() == 1
    claimed = claims.take(runtime, known(chosen))
    assert claimed is not None
    assert claimed.task_id == kept
    assert free() == 0
    hand(runtime, "by-type", worker_type="special", affinity={"workstreams": ["elsewhere"]})
    assert free() == 0
    hand(runtime, "drawn", worker_type="special", affinity={"workstreams": [str(workstream)]})
    assert free() == 1
