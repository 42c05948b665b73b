"""External agents: register, claim, heartbeat, finish, leave; and what task execution makes of a claimed task."""

from pathlib import Path
from threading import Thread
from typing import Any

import psycopg
import pytest

from interlock.workers import circuit_breakers
from interlock.workers.client.client import Client
from interlock.workers.pool import work_loop
from interlock.workers.pool.agent import Agent, NotRegistered, ShutDown
from interlock.workers.pool.claims import StaleClaim
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput, UnknownInstance
from tests.crewing import Site, hand, row
from tests.driving import drain_all, reported, state
from tests.rights import known
from tests.waiting import eventually

pytestmark = pytest.mark.integration


def agent_of(runtime: Runtime, **said: Any) -> Agent:
    return Agent("agent-7", runtime=runtime, **said)


def test_an_agent_claims_and_finishes_what_fits_it(
    runtime: Runtime, client: Client, site: Site, dba: "psycopg.Connection[Any]"
) -> None:
    instructions = {"instructions": "think"}
    (task,) = site.queue(1, kind="agent", agent=instructions, required_capabilities=["python", "interlock:agent"])
    with agent_of(runtime, capabilities=["python"]) as agent:
        claim = agent.claim()
        assert claim is not None
        assert (claim.task_id, claim.context["agent"]) == (task, instructions)
        assert agent.holds(claim.token)
        assert agent.finish(claim.token, output={"summary": "thought", "stdout": "x" * 40_000}) == "execution_completed"
        drain_all(runtime)
        said = reported(client, task)
        assert (said["summary"], len(said["stdout"]), said["worker"]) == ("thought", 16_384, "agent-7")
        assert agent.claim() is None
    drain_all(runtime)
    assert state(client, agent.id or "") == "shutdown"
    assert row(dba, "tasks", task)["state"] == "completed"


@pytest.mark.parametrize(
    ("told", "expected", "becomes"),
    [
        ({}, [0], "completed"),
        ({"exit_code": 3}, [3], "completed"),
        ({"exit_code": 0}, [3], "retrying"),
        ({"exit_code": 3}, [0], "retrying"),
        ({"error": "it broke"}, [0], "retrying"),
        ({"exit_code": 0, "error": "it broke\x00 all the same"}, [0], "retrying"),
    ],
    ids=str,
)
def test_the_expected_exit_code_without_an_error_is_a_success(
    runtime: Runtime, client: Client, site: Site, told: dict[str, Any], expected: list[int], becomes: str
) -> None:
    (task,) = site.queue(1, kind="agent", expected_exit_codes=expected)
    with agent_of(runtime) as agent:
        claim = agent.claim()
        assert claim is not None
        agent.finish(claim.token, **told)
        drain_all(runtime)
    assert state(client, task) == becomes


def test_an_agent_that_was_shut_down_hears_of_it(runtime: Runtime) -> None:
    with agent_of(runtime) as agent:
        agent.leave()
        drain_all(runtime)
        for call in (agent.heartbeat, agent.claim):
            with pytest.raises(ShutDown, match="agent-7"):
                call()
        agent.register()
        assert agent.heartbeat() == "idle"


def test_what_is_no_claim_of_the_agents_is_refused(runtime: Runtime) -> None:
    with pytest.raises(NotRegistered):
        agent_of(runtime).claim()
    with agent_of(runtime) as agent:
        with pytest.raises(StaleClaim, match="has no claim under this token"):
            agent.finish(4711)
        with pytest.raises(BadInput, match="output"):
            agent.finish(4711, output={"nan": float("nan")})


# Task execution ------------------------------------------------------------------------------------------


def carried_out(runtime: Runtime, client: Client, site: Site, **context: Any) -> tuple[str, dict[str, Any]]:
    """Let a worker carry out one task; its state, and what the worker reported."""
    (task,) = site.queue(1, **context)
    assert work_loop.work(runtime, known(hand(runtime))) == 1
    drain_all(runtime)
    return state(client, task), reported(client, task)


@pytest.mark.parametrize(
    ("context", "becomes", "error"),
    [
        ({"command": ["python3", "-c", "raise SystemExit(4)"], "expected_exit_codes": [4]}, "completed", None),
        ({"command": ["python3", "-c", "raise SystemExit(4)"]}, "retrying", "exit code 4"),
        ({"command": "exit 5", "shell": True, "kind": "shell"}, "retrying", "exit code 5"),
        ({"command": "echo b >&2; echo a; exit 6", "shell": True, "kind": "shell"}, "retrying", "exit code 6: b"),
        ({"command": ["no-such-program-anywhere"]}, "retrying", "no-such-program-anywhere"),
        ({"command": [""]}, "retrying", "BadInput: argv"),
        ({"command": ["python3", "-c", "print(1)"], "cwd": "/no/such/place"}, "retrying", "/no/such/place"),
        ({"kind": "patch"}, "retrying", "no patch"),
    ],
    ids=str,
)
def test_however_a_command_ends_it_is_a_report(
    runtime: Runtime, client: Client, site: Site, context: dict[str, Any], becomes: str, error: str | None
) -> None:
    reached, said = carried_out(runtime, client, site, **context)
    assert reached == becomes
    assert (error or "") in said.get("error", "")


def test_a_command_sees_its_environment_and_directory(
    runtime: Runtime, client: Client, site: Site, tmp_path: Path
) -> None:
    command = ["python3", "-c", "import os; print(os.getcwd(), os.environ['GREETING'])"]
    _, said = carried_out(runtime, client, site, command=command, env={"GREETING": "hello"}, cwd=str(tmp_path))
    assert said["stdout"] == f"{tmp_path} hello\n"


def test_a_command_that_takes_too_long_has_timed_out(runtime: Runtime, client: Client, site: Site) -> None:
    command = ["python3", "-c", "import time; time.sleep(60)"]
    reached, said = carried_out(runtime, client, site, command=command, timeout_sec=0.3)
    assert reached == "retrying"
    assert said["timeout_occurred"] is True
    assert "timed out" in said["error"]


@pytest.mark.parametrize("context", [{"command": [""]}, {"kind": "patch"}], ids=str)
def test_what_never_ran_a_tool_tells_nothing_of_it(
    runtime: Runtime, client: Client, site: Site, context: dict[str, Any]
) -> None:
    reached, _ = carried_out(runtime, client, site, tool="linter", **context)
    assert reached == "retrying"
    with pytest.raises(UnknownInstance, match="the tool has not been called there yet"):
        circuit_breakers.known(runtime, site.project, "linter")


def test_a_task_taken_away_meanwhile_counts_neither_as_failure_nor_as_success_of_its_tool(
    runtime: Runtime, client: Client, site: Site, tmp_path: Path
) -> None:
    site.queue(2, command=["false"], tool="linter", max_retries=0)
    assert work_loop.work(runtime, known(hand(runtime))) == 2
    begun = tmp_path / "begun"
    (task,) = site.queue(1, command=["sh", "-c", f"touch {begun}; sleep 60"], tool="linter")
    worker = Thread(target=work_loop.work, args=(runtime, known(hand(runtime, "another"))))
    worker.start()
    eventually(begun.exists)
    client.fire(task, "user_cancelled", by="ann")
    drain_all(runtime)
    worker.join()
    assert circuit_breakers.known(runtime, site.project, "linter").failure_count == 2
