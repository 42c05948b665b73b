"""Tasks whose tool has a breaker: they wait while it is open, try it one at a time, and a trial ends with its claim."""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from rich.console import Console

from interlock.beat import sweeps
from interlock.cli.runs.tree import draw
from interlock.db.connection import transaction
from interlock.workers.circuit_breakers import BreakerOpen, calling, calling_for_claim
from interlock.workers.circuit_breakers import known as breaker_of
from interlock.workers.client.client import Client
from interlock.workers.orchestration.run_view import Watch
from interlock.workers.orchestration.submission import submit
from interlock.workers.overrides.reset_task import reset_task
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.pool import claims, registration, work_loop
from interlock.workers.pool.agent import Agent
from interlock.workers.pool.claims import Claim
from interlock.workers.pool.report import Report
from interlock.workers.runtime import Runtime
from interlock.workflows.plan.read import read_plan
from tests.callers import TOOL, let_the_cooldown_pass
from tests.crewing import Site, hand, row, silence
from tests.driving import drain_all, make_due, state, swept
from tests.rights import known
from tests.stuck import found, look
from tests.working import settle

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ann")]
Dba = psycopg.Connection[Any]
Return = Callable[[Runtime, Dba, Claim], None]
MANY = 6
DONE = Report("execution_completed", {"exit_code": 0})


@pytest.fixture
def opened(runtime: Runtime, project: str) -> None:
    for _ in range(5):
        with calling(runtime, project, TOOL) as call:
            call.failed("it hangs")


def half_open(runtime: Runtime, dba: Dba) -> None:
    """Let the cooldown pass, and the sweep notice it."""
    let_the_cooldown_pass(runtime.settings)
    sweep(runtime, dba, "dispatch")


def sweep(runtime: Runtime, dba: Dba, name: str) -> None:
    dba.execute("DELETE FROM sweeps")  # each time is a new period
    swept(runtime, name)
    drain_all(runtime)


def free_hands(runtime: Runtime) -> int:
    with transaction(runtime.database) as connection:
        return sweeps.dispatch(connection, silent_seconds=runtime.settings.silent_seconds).free_workers


def take(runtime: Runtime, worker: UUID) -> Claim | None:
    claim = claims.take(runtime, known(worker))
    drain_all(runtime)
    return claim


@pytest.mark.promise("O3")
def test_a_task_waits_for_its_tools_cooldown_without_being_tried(
    runtime: Runtime, client: Client, site: Site, opened: None, dba: Dba
) -> None:
    tasks = site.queue(3, tool=TOOL, max_retries=0)
    (other,) = site.queue(1)
    worker = hand(runtime)
    assert free_hands(runtime) == 1
    assert work_loop.work(runtime, known(worker)) == 1  # the one that does not need the tool
    drain_all(runtime)
    assert state(client, other) == "completed"
    assert [state(client, each) for each in tasks] == ["queued"] * 3
    assert free_hands(runtime) == 0  # nobody is woken for what cannot start
    half_open(runtime, dba)
    assert free_hands(runtime) == 1
    assert work_loop.work(runtime, known(worker)) == 3
    drain_all(runtime)
    assert [state(client, each) for each in tasks] == ["completed"] * 3
    assert {row(dba, "tasks", each)["retry_count"] for each in tasks} == {0}
    assert breaker_of(runtime, site.project, TOOL).state == "CLOSED"


def test_of_many_workers_that_claim_at_once_one_tries_a_half_open_tool(
    runtime: Runtime, site: Site, opened: None, dba: Dba
) -> None:
    site.queue(MANY, tool=TOOL)
    hands = [hand(runtime, f"W{number}") for number in range(MANY)]
    half_open(runtime, dba)
    with ThreadPoolExecutor(MANY) as pool:
        taken = [*filter(None, pool.map(lambda worker: claims.take(runtime, known(worker)), hands))]
    assert len(taken) == 1
    with pytest.raises(BreakerOpen), calling(runtime, site.project, TOOL):
        pytest.fail("a second trial")
    (trial,) = taken
    with calling_for_claim(runtime, site.project, TOOL, by="crew", claim_id=trial.id):
        pass
    assert breaker_of(runtime, site.project, TOOL).state == "CLOSED"
    drain_all(runtime)
    others = [worker for worker in hands if worker != trial.worker_id]
    assert all(take(runtime, each) for each in others)


def is_silent(runtime: Runtime, dba: Dba, claim: Claim) -> None:
    silence(dba, claim.worker_id, 121)
    sweep(runtime, dba, "heartbeats")


def runs_out_of_time(runtime: Runtime, dba: Dba, claim: Claim) -> None:
    make_due(dba, "timeout_exceeded")
    sweep(runtime, dba, "dispatch")


def leaves(runtime: Runtime, dba: Dba, claim: Claim) -> None:
    registration.leave(runtime, known(claim.worker_id))
    drain_all(runtime)


def is_overridden(runtime: Runtime, dba: Dba, claim: Claim) -> None:
    reset_task(runtime, str(claim.task_id), OverrideOrder("ann", "another try"))
    drain_all(runtime)


def is_cancelled(runtime: Runtime, dba: Dba, claim: Claim) -> None:
    Client(runtime).fire(claim.task_id, "user_cancelled", by="ann")
    drain_all(runtime)


def reports_without_a_call(runtime: Runtime, dba: Dba, claim: Claim) -> None:
    claims.finish(runtime, known(claim.worker_id), claim.token, Report("execution_failed", {"error": "no worktree"}))
    drain_all(runtime)


@pytest.mark.parametrize(
    "ends", [is_silent, runs_out_of_time, leaves, is_overridden, is_cancelled, reports_without_a_call]
)
@pytest.mark.promise("O2")
def test_a_trial_ends_with_its_claim_whatever_takes_the_claim(
    runtime: Runtime, site: Site, opened: None, dba: Dba, ends: Return
) -> None:
    site.queue(2, tool=TOOL)
    first, second = hand(runtime, "first"), hand(runtime, "second")
    half_open(runtime, dba)
    lost = take(runtime, first)
    assert lost
    assert take(runtime, second) is None
    assert 1_700 < breaker_of(runtime, site.project, TOOL).seconds_until_reset <= 1_800  # its time limit, at most
    ends(runtime, dba, lost)
    trial = take(runtime, second)
    assert trial
    with calling_for_claim(runtime, site.project, TOOL, by="crew", claim_id=lost.id) as late:
        late.failed("told too late")
    assert breaker_of(runtime, site.project, TOOL).state == "HALF_OPEN"
    with calling_for_claim(runtime, site.project, TOOL, by="crew", claim_id=trial.id):
        pass
    assert breaker_of(runtime, site.project, TOOL).state == "CLOSED"


def test_an_agents_task_waits_for_its_tool_and_the_agents_own_call_is_the_trial(
    runtime: Runtime, site: Site, opened: None, dba: Dba
) -> None:
    site.queue(1, kind="agent", tool=TOOL)
    with Agent("agent-7", runtime=runtime) as agent:
        assert agent.claim() is None
        half_open(runtime, dba)
        claim = agent.claim()
        assert claim
        with calling(runtime, site.project, TOOL):
            pass
        agent.finish(claim.token)
    assert breaker_of(runtime, site.project, TOOL).state == "CLOSED"


@pytest.mark.promise("O3")
def test_stuck_and_the_tree_say_which_breaker_a_task_waits_for_and_how_long(
    runtime: Runtime, site: Site, opened: None, dba: Dba
) -> None:
    first, second = site.queue(2, tool=TOOL)
    hand(runtime)
    told = found(runtime, first, everything=True)
    waits = f"it waits for the breaker of its tool {TOOL}"
    assert re.fullmatch(rf"{waits}, which is OPEN: it may go on in [56]\d s", told.reason)
    assert f"interlock breaker show {TOOL}" in told.command
    assert f"interlock breaker show {TOOL}" in found(runtime, TOOL, everything=True).command, "it goes on by itself"
    assert re.search(rf"queued +waits for the breaker of {TOOL}, [56]\d s", drawn(runtime, dba))
    half_open(runtime, dba)
    claim = take(runtime, hand(runtime, "another"))
    assert claim
    waiting = second if claim.task_id == first else first
    told = found(runtime, waiting, everything=True)
    assert told.reason == f"{waits}, which is HALF_OPEN: another call tries the tool, and may take another 30 min"
    assert re.search(rf"waits for the breaker of {TOOL}, 1[78]\d\d s", drawn(runtime, dba))
    with calling_for_claim(runtime, site.project, TOOL, by="crew", claim_id=claim.id):
        pass
    assert "waits for the breaker" not in drawn(runtime, dba)


def drawn(runtime: Runtime, dba: Dba) -> str:
    """The newest run as a tree."""
    (run,) = dba.execute("SELECT run_id FROM runs ORDER BY created_at DESC LIMIT 1").fetchone() or ()
    console = Console(file=StringIO(), width=200)
    with console.capture() as captured:
        console.print(draw(Watch(runtime, run).view, lines=20))
    return captured.get()


@pytest.mark.promise("O2")
def test_a_half_open_breaker_that_nobody_tries_is_stuck_unless_nobody_wants_to(
    runtime: Runtime, site: Site, opened: None, dba: Dba
) -> None:
    half_open(runtime, dba)
    breaker = breaker_of(runtime, site.project, TOOL).breaker_id
    dba.execute("UPDATE circuit_breakers SET updated_at = updated_at - interval '61 seconds'")
    assert look(runtime) == []
    site.queue(1, tool=TOOL)
    assert f"nobody tries {TOOL}" in found(runtime, breaker).reason
    assert take(runtime, hand(runtime))
    assert look(runtime) == []


def test_work_that_does_not_name_the_tool_is_claimed_past_what_waits_for_it(
    make_runtime: Callable[..., Runtime], project: str, dba: Dba
) -> None:
    runtime = make_runtime(breaker_failure_threshold=1)
    client = Client(runtime)
    site = Site(client, project)
    (failing,) = site.queue(1, command=["false"], tool=TOOL, max_retries=1, priority=1)
    waiting, free = site.queue(1, tool=TOOL, priority=1)[0], site.queue(1)[0]
    assert work_loop.work(runtime, known(hand(runtime))) == 2
    drain_all(runtime)
    assert [state(client, each) for each in (failing, waiting, free)] == ["retrying", "queued", "completed"]
    make_due(dba, "retry_delay_elapsed")
    sweep(runtime, dba, "dispatch")
    assert (state(client, failing), row(dba, "tasks", failing)["retry_count"]) == ("queued", 1)
    assert work_loop.work(runtime, known(hand(runtime, "another"))) == 0  # it waits with its last try left


def test_a_missing_working_directory_is_the_plans_fault_and_not_the_tools(
    make_runtime: Callable[..., Runtime], tmp_path: Path
) -> None:
    """BREAKER-8."""
    runtime = make_runtime(breaker_failure_threshold=1, sandbox="off")
    client = Client(runtime)
    task = '{id: t, command: ["true"], tool: make, retries: 0, cwd: built-by-an-earlier-task}'
    plan = read_plan(f"name: p\ntools: {{make: {{}}}}\nworkstreams: [{{id: w, tasks: [{task}]}}]\n")
    run = submit(runtime, plan, by="ann", directory=tmp_path)
    settle(client, run.id)
    assert work_loop.work(runtime, known(hand(runtime))) == 1
    drain_all(runtime)
    last = client.history(f"{run.name}/w/t")[-1]
    assert (last["to_state"], "built-by-an-earlier-task" in str(last["metadata"])) == ("failed", True)
    assert breaker_of(runtime, run.project, "make").failure_count == 0
