"""A task that stands still is told of with the reason, and the command printed beside it cures it (RECOVER-3)."""

import re
from uuid import UUID

import pytest

from interlock.workers.client.client import Client
from interlock.workers.pool import claims, registration
from interlock.workers.pool.registration import AGENT, EXECUTE, Registration
from interlock.workers.runtime import Runtime
from tests.crewing import Site, hand, take
from tests.driving import applied, drain_all, make_due, state
from tests.running import Stage
from tests.stuck import found, look, paste

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ann")]
Dba = "psycopg.Connection[Any]"
HALF_AN_HOUR, HOUR, DAY = 1800.0, 3600.0, 86_400.0


def test_a_running_task_names_its_worker_and_is_made_anew_once_its_time_is_over(
    runtime: Runtime, client: Client, site: Site, dba: Dba
) -> None:
    (task,) = site.queue()
    take(runtime, hand(runtime, "W"))
    told = found(runtime, task, everything=True)
    assert re.match(r"worker W \(busy, last heartbeat \d+ s ago\) runs it; it times out at ", told.reason)
    paste(runtime, told.command)
    assert state(client, task) == "running", "it is healthy"
    make_due(dba, "timeout_exceeded")
    paste(runtime, found(runtime, task, everything=True).command)
    assert state(client, task) == "cancelled"


def test_a_queued_task_names_the_capability_nobody_offers(runtime: Runtime, client: Client, site: Site) -> None:
    hand(runtime)
    (task,) = site.queue(1, required_capabilities=["cobol", EXECUTE])
    told = found(runtime, task, everything=True)
    assert told.reason == "it waits for a worker: none offers cobol"
    assert told.command.startswith("INTERLOCK_CAPABILITIES=cobol celery -A interlock.workers.main:app worker -Q work")
    hand(runtime, "old-hand", capabilities=("cobol",))
    take(runtime, found_worker(client, "old-hand"))
    assert state(client, task) == "running"


def test_a_queued_task_that_needs_what_no_single_worker_offers_says_so(runtime: Runtime, site: Site) -> None:
    hand(runtime, "A", capabilities=("cobol",))
    hand(runtime, "B", capabilities=("git",))
    (task,) = site.queue(1, required_capabilities=["cobol", "git"])
    told = found(runtime, task, everything=True)
    assert told.reason == "it waits for a worker: no single one offers cobol and git"
    assert "INTERLOCK_CAPABILITIES=cobol,git celery" in told.command


def test_a_task_for_an_agent_gets_one_registered(runtime: Runtime, client: Client, site: Site) -> None:
    hand(runtime)
    (task,) = site.queue(1, kind="agent", required_capabilities=["git", AGENT])
    told = found(runtime, task, everything=True)
    assert told.reason == "it waits for an agent: none is registered that offers git"
    said = paste(runtime, told.command, NAME="agent-7").said
    secret = re.findall(r"not shown again: (\S+)", said)[0]
    claims.take(runtime, Registration(found_worker(client, "agent-7"), secret))
    drain_all(runtime)
    assert state(client, task) == "running"


def found_worker(client: Client, name: str) -> UUID:
    return UUID(str(registration.find(client.runtime, name)["worker_id"]))


def test_a_queued_task_without_any_worker_says_so(runtime: Runtime, site: Site) -> None:
    (task,) = site.queue()
    told = found(runtime, task, everything=True)
    assert told.reason == "it waits for a worker: none is alive"
    assert told.command == "interlock up --detach"


def test_a_queued_task_whose_worker_is_suspended_is_freed(runtime: Runtime, client: Client, site: Site) -> None:
    worker = hand(runtime, "W")
    applied(client, worker, "suspend")
    (task,) = site.queue()
    told = found(runtime, task, everything=True)
    assert told.reason == "worker W, which could run it, is suspended"
    paste(runtime, told.command)
    assert state(client, worker) == "idle"
    told = found(runtime, task, everything=True)
    assert told.reason.startswith("worker W is free and could run it, but claims no task: if that lasts, kill it")
    assert "pid" in paste(runtime, told.command).out


def test_a_queued_task_whose_workers_are_busy_says_how_many(runtime: Runtime, site: Site) -> None:
    _, second = site.queue(2)
    take(runtime, hand(runtime))
    told = found(runtime, second, everything=True)
    assert told.reason == "1 worker that could run it: busy (0 draining)"
    paste(runtime, told.command)


def test_a_claimed_task_that_was_never_begun_is_taken_from_its_worker(
    runtime: Runtime, client: Client, site: Site, dba: Dba
) -> None:
    (task,) = site.queue()
    worker = hand(runtime, "W")
    dba.execute(  # its process died between its claim and its `worker_started`
        "INSERT INTO task_claims (task_id, run_id, worker_id) SELECT task_id, run_id, %s FROM tasks", (worker,)
    )
    told = found(runtime, task, everything=True)
    assert re.fullmatch(r"worker W claimed it \d+ s ago and has not started it", told.reason)
    assert told.command == f"interlock show {task}", "it may be about to"
    dba.execute("UPDATE task_claims SET claimed_at = now() - interval '31 seconds'")
    paste(runtime, found(runtime, task, everything=True).command)
    assert state(client, task) == "cancelled"
    ((anew,),) = dba.execute("SELECT task_id FROM tasks WHERE state = 'pending'").fetchall()
    applied(client, anew, "scheduler_assigned")
    take(runtime, hand(runtime, "V"))
    assert state(client, anew) == "running"


def test_a_pending_task_names_what_it_depends_on(stage: Stage, runtime: Runtime) -> None:
    stage.submit({"w": {}}, {"a": {"workstream": "w"}, "b": {"workstream": "w", "depends_on": ["a"]}})
    stage.start()
    told = found(runtime, stage.ids["b"], everything=True)
    assert told.reason == "it depends on task a (queued)"
    assert "queued" in paste(runtime, told.command).out


def test_a_validating_task_names_its_gate(stage: Stage, runtime: Runtime) -> None:
    stage.starts_gates = False
    stage.submit({"w": {}}, {"t": {"workstream": "w", "gates": ["g"]}}, {"g": {"workstream": "w", "moment": "task"}})
    stage.start()
    stage.work("t")
    assert found(runtime, stage.ids["t"], everything=True).reason == "it waits for test_gate g (PENDING)"
    told = found(runtime, stage.ids["g"], everything=True)
    assert re.fullmatch(r"the effect run_gate has been due for \d+ s, but no node has started it", told.reason)
    assert told.command == "interlock doctor"


def test_tasks_that_nobody_could_take_are_stuck_at_once_and_told_as_one(runtime: Runtime, site: Site, dba: Dba) -> None:
    hand(runtime)
    waiting = site.queue(3, required_capabilities=["cobol"])
    site.queue(1)  # somebody could take this one
    dba.execute("UPDATE workflow_instances SET updated_at = now() - interval '61 seconds'")
    (only,) = look(runtime)
    assert only.workflow_id in waiting
    assert only.reason == "it waits for a worker: none offers cobol; 2 more tasks wait likewise"
