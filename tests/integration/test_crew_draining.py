"""Draining: a worker that is to leave finishes what it holds, takes no more, and is then shut down."""

from typing import Any
from uuid import UUID

import psycopg
import pytest

from interlock.db.connection import transaction
from interlock.db.core import requests
from interlock.db.orchestration import claim_triggers
from interlock.db.orchestration import claims as crew
from interlock.workers.client.client import Client
from interlock.workers.overrides import operators
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.overrides.workers import move, shut_down
from interlock.workers.pool import claims
from interlock.workers.pool.claims import StaleClaim
from interlock.workers.pool.registration import drain, leave
from interlock.workers.runtime import Runtime
from tests.crewing import Site, finish, hand, look_at_runs, row, take
from tests.driving import drain_all, state, trail
from tests.rights import fire, known, operate

pytestmark = pytest.mark.integration


def test_a_draining_worker_finishes_takes_no_more_and_shuts_down(runtime: Runtime, client: Client, site: Site) -> None:
    site.queue(2)
    worker = hand(runtime, max_concurrent_tasks=2)
    claim = take(runtime, worker)
    assert drain(runtime, known(worker)) == 1
    drain_all(runtime)
    assert state(client, worker) == "idle"
    assert claims.take(runtime, known(worker)) is None
    finish(runtime, claim)
    assert state(client, worker) == "shutdown"
    assert state(client, claim.task_id) == "completed"


def test_a_worker_without_work_drains_at_once(runtime: Runtime, client: Client) -> None:
    worker = hand(runtime)
    assert drain(runtime, known(worker)) == 0
    drain_all(runtime)
    assert state(client, worker) == "shutdown"


def test_who_leaves_gives_back_what_it_holds(
    runtime: Runtime, client: Client, site: Site, dba: "psycopg.Connection[Any]"
) -> None:
    (task,) = site.queue()
    claim = take(runtime, worker := hand(runtime, "W"))
    leave(runtime, known(worker), "went home")
    drain_all(runtime)
    assert (state(client, worker), state(client, task)) == ("shutdown", "retrying")
    found = row(dba, "tasks", task)
    assert (found["last_error"], found["exit_code"]) == ("worker W went home", None)
    with pytest.raises(StaleClaim):
        finish(runtime, claim)


def test_who_leaves_before_its_start_was_applied_leaves_no_task_running(
    runtime: Runtime, client: Client, site: Site
) -> None:
    (task,) = site.queue()
    worker = hand(runtime)
    with transaction(runtime.database) as connection:
        claimed = crew.claim(connection, worker, known(worker).secret)
        assert claimed is not None
        requests.accept(connection, claim_triggers.claimed(claimed))
    leave(runtime, known(worker), "was interrupted")
    drain_all(runtime)
    assert trail(client, task) == ["scheduler_assigned", "worker_started", "execution_failed"]
    assert state(client, worker) == "shutdown"


@pytest.mark.parametrize("by", ["itself", "ann", "who is an operator no more"])
def test_a_draining_worker_whose_last_claim_is_revoked_is_shut_down(
    runtime: Runtime, client: Client, site: Site, dba: "psycopg.Connection[Any]", by: str
) -> None:
    (task,) = site.queue()
    claim = take(runtime, worker := hand(runtime))
    if by != "itself":
        operate(runtime, "ann", "bob")
        assert shut_down(runtime, "hand", by="ann", reason="enough") == 1
    else:
        assert drain(runtime, known(worker)) == 1
    if by.startswith("who"):
        operators.revoke(runtime, "ann", by="bob", reason="left")
    client.fire(task, "user_cancelled", by="ann")
    look_at_runs(runtime, claim)
    assert (state(client, worker), row(dba, "workers", worker)["current_load"]) == ("shutdown", 0)
    last = client.history(worker)[-1]
    assert last["triggered_by"] == ("hand" if by == "itself" else "ann")
    assert last["authority"] == ("operator" if by == "ann" else "machinery")
    assert last["metadata"].get("reason") == (None if by == "itself" else "enough")


@pytest.mark.promise("O6")
def test_a_worker_that_holds_a_task_is_not_shut_down_under_it(runtime: Runtime, client: Client, site: Site) -> None:
    (task,) = site.queue()
    take(runtime, worker := hand(runtime, max_concurrent_tasks=2))
    for standing, before in (("idle", ()), ("suspended", ("suspend",))):
        for trigger in (*before, "shutdown_requested"):
            fire(client, worker, trigger, by="ann")
        drain_all(runtime)
        assert (state(client, worker), state(client, task)) == (standing, "running")
    assert "let it finish first" in client.show(worker)["requests"][0]["result"]["message"]


@pytest.mark.parametrize("standing", ["busy", "suspended"])
@pytest.mark.promise("O6")
def test_a_busy_or_suspended_worker_finishes_its_task_and_is_then_shut_down(
    runtime: Runtime, client: Client, site: Site, standing: str
) -> None:
    operate(runtime, "ann")
    site.queue(2)
    worker = hand(runtime, max_concurrent_tasks=1 if standing == "busy" else 2)
    claim = take(runtime, worker)
    if standing == "suspended":
        move(runtime, "hand", "suspend", OverrideOrder("ann", "odd"))
    assert shut_down(runtime, "hand", by="ann", reason="enough") == 1
    drain_all(runtime)
    assert (state(client, worker), claims.take(runtime, known(worker))) == (standing, None)
    finish(runtime, claim)
    assert (state(client, worker), state(client, claim.task_id)) == ("shutdown", "completed")


def test_a_worker_that_never_became_ready_is_shut_down(runtime: Runtime, client: Client, project: str) -> None:
    operate(runtime, "ann")
    worker = UUID(str(client.create("worker", "unready", project=project)["id"]))
    assert shut_down(runtime, "unready", by="ann", reason="it never came") == 0
    assert state(client, worker) == "shutdown"


@pytest.mark.parametrize("before", [(), ("suspend",)])
def test_a_worker_may_leave_from_every_state(runtime: Runtime, client: Client, before: tuple[str, ...]) -> None:
    worker = hand(runtime)
    for trigger in before:
        fire(client, worker, trigger, by="ann")
        drain_all(runtime)
    leave(runtime, known(worker), "left")
    drain_all(runtime)
    assert state(client, worker) == "shutdown"
