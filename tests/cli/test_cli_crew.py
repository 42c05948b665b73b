"""`interlock worker`: an agent's whole life at a terminal."""

from pathlib import Path
from typing import Any

import pytest

from tests.cli.terminal import Terminal
from tests.waiting import eventually


@pytest.fixture
def task(terminal: Terminal, project: str, name: str) -> str:
    """The name of a task that only this test's agent can do."""
    run = terminal.ok("create", "run", f"R-{name}")["id"]
    context = f'{{"run_id": "{run}", "task_count": 1}}'
    workstream = terminal.ok("create", "workstream", f"W-{name}", "--context", context)["id"]
    said = f'"kind": "agent", "required_capabilities": ["{name}"], "max_retries": 0'
    context = f'{{"run_id": "{run}", "workstream_id": "{workstream}", {said}}}'
    terminal.ok("create", "task", f"T-{name}", "--context", context)
    terminal.by_right(run, "start")
    return f"T-{name}"


def proven(terminal: Terminal, made: dict[str, Any]) -> Terminal:
    """The terminal of who has a new worker's secret."""
    return terminal.set(INTERLOCK_WORKER_SECRET=made["secret"])


def test_an_agent_registers_claims_finishes_and_leaves(terminal: Terminal, task: str, name: str) -> None:
    registered = terminal.ok("worker", "register", name, "--can", name)
    assert terminal.run("worker", "register", name).code == 2
    terminal.run("worker", "claim", name).is_one_clear_line("INTERLOCK_WORKER_SECRET", "--secret-file")
    terminal = proven(terminal, registered)
    claimed = eventually(lambda: terminal.ok("worker", "claim", name), timeout=30)
    assert (claimed["task"], claimed["worker_id"]) == (task, registered["worker_id"])
    shown = terminal.ok("worker", "show", name)
    assert [each["entity_id"] for each in shown["holds"]] == [task]
    assert set(shown["capabilities"]) == {name, "interlock:agent"}
    assert terminal.ok("worker", "claim", name, "--again") == [claimed]
    token = str(claimed["token"])
    assert token in terminal.run("worker", "claim", name, "--again").said
    stranger = terminal.set(INTERLOCK_WORKER_SECRET="x" * 43).run("worker", "claim", name, "--again")
    assert (stranger.code, token in stranger.said) == (2, False)
    assert terminal.ok("worker", "finish", name, token, "--output", '{"seen": 1}')["trigger"] == "execution_completed"
    eventually(lambda: terminal.ok("show", task)["current_state"] == "completed", timeout=30)
    assert terminal.ok("worker", "heartbeat", name) == {"name": name, "state": "idle"}
    terminal.ok("worker", "shutdown", name, "--by", name)
    eventually(lambda: terminal.ok("worker", "show", name)["state"] == "shutdown", timeout=30)
    terminal.run("worker", "claim", name).is_one_clear_line(name, "register again")


def test_a_stale_claim_exits_2(terminal: Terminal, task: str, name: str) -> None:
    terminal = proven(terminal, terminal.ok("worker", "register", name, "--can", name))
    token = str(eventually(lambda: terminal.ok("worker", "claim", name), timeout=30)["token"])
    terminal.ok("fire", task, "user_cancelled", "--by", "ann", "--wait")
    eventually(lambda: terminal.ok("worker", "show", name)["state"] == "idle", timeout=30)
    assert terminal.ok("worker", "claim", name, "--again") == []
    stale = terminal.run("worker", "finish", name, token)
    assert stale.code == 2
    stale.is_one_clear_line("the claim is no longer valid")
    unknown = terminal.run("worker", "finish", name, "987654321", "--json")
    assert (unknown.code, unknown.json["error"]) == (2, "StaleClaim")
    terminal.ok("worker", "shutdown", name, "--by", name, "--now")


def test_a_worker_is_suspended_and_resumed(terminal: Terminal, name: str) -> None:
    registered = terminal.ok("worker", "register", name)
    made, terminal = registered["worker_id"], proven(terminal, registered)
    by_ann = ("--by", "ann", "--reason", "it is ill")
    assert terminal.ok("worker", "suspend", name, *by_ann)["result"]["to"] == "suspended"
    assert terminal.run("worker", "suspend", name, *by_ann).code == 2
    assert name in {each["name"] for each in terminal.ok("worker", "list", "--state", "suspended")}
    terminal.ok("worker", "resume", name, *by_ann)
    assert terminal.ok("worker", "heartbeat", name)["state"] == "idle"
    moves = [each for each in terminal.ok("history", made) if each["trigger"] in ("suspend", "resume")]
    assert [(each["triggered_by"], each["metadata"]["reason"]) for each in moves] == [("ann", "it is ill")] * 2
    terminal.ok("worker", "shutdown", name, "--by", name)


def test_only_itself_and_operators_end_a_worker_and_history_says_who_and_why(
    terminal: Terminal, task: str, name: str
) -> None:
    registered = terminal.ok("worker", "register", name, "--can", name)
    made, terminal = registered["worker_id"], proven(terminal, registered)
    eventually(lambda: terminal.ok("worker", "claim", name), timeout=30)
    for verb in (("shutdown",), ("shutdown", "--now"), ("suspend",), ("resume",)):
        stranger = terminal.run("worker", *verb, name, "--by", "mallory", "--reason", "I like to")
        assert stranger.code == 2
        stranger.is_one_clear_line("'mallory' is not an operator")
    silent = terminal.run("worker", "shutdown", name, "--by", "ann")
    assert silent.code == 2
    silent.is_one_clear_line("--reason")
    assert terminal.ok("worker", "show", name)["state"] == "busy"
    terminal.ok("worker", "shutdown", name, "--by", "ann", "--reason", "its machine is needed", "--now")
    eventually(lambda: terminal.ok("worker", "show", name)["state"] == "shutdown", timeout=30)
    left = terminal.ok("history", made)[-1]
    assert (left["triggered_by"], left["metadata"]["reason"]) == ("ann", "its machine is needed")
    returned = eventually(
        lambda: [each for each in terminal.ok("history", task) if each["trigger"] == "execution_failed"]
    )
    assert returned[0]["metadata"]["reason"] == f"worker {name} was shut down by ann: its machine is needed"


def test_who_ended_a_worker_that_finishes_its_task_first_is_in_its_last_event(
    terminal: Terminal, task: str, name: str
) -> None:
    registered = terminal.ok("worker", "register", name, "--can", name)
    made, terminal = registered["worker_id"], proven(terminal, registered)
    token = str(eventually(lambda: terminal.ok("worker", "claim", name), timeout=30)["token"])
    terminal.ok("worker", "shutdown", name, "--by", "ann", "--reason", "its machine is needed")
    terminal.ok("worker", "finish", name, token)
    eventually(lambda: terminal.ok("worker", "show", name)["state"] == "shutdown", timeout=30)
    left = terminal.ok("history", made)[-1]
    assert (left["triggered_by"], left["metadata"]["reason"]) == ("ann", "its machine is needed")


def test_nobody_of_that_name_is_refused_in_one_line(terminal: Terminal) -> None:
    terminal = terminal.set(INTERLOCK_WORKER_SECRET="x" * 43)
    for words in (("show",), ("claim",), ("heartbeat",), ("shutdown",)):
        answer = terminal.run("worker", *words, "no-such-worker")
        assert answer.code == 2
        answer.is_one_clear_line("no worker is called 'no-such-worker'")


def test_a_worker_of_the_execution_engine_is_kept_alive_by_its_heartbeats(
    terminal: Terminal, project: str, name: str
) -> None:
    created = terminal.ok("create", "uet_worker", name)
    made, terminal = created["id"], proven(terminal, created)
    assert terminal.ok("worker", "heartbeat", name) == {"name": name, "state": "SPAWNING"}
    terminal.ok("fire", made, "initialization_complete", "--by", name, "--proof", "secret", "--wait")
    assert terminal.ok("worker", "shutdown", name, "--by", name)["tasks_left"] == 0
    gone = terminal.run("worker", "heartbeat", name)
    assert gone.code == 2
    gone.is_one_clear_line(name, "is shut down")


def test_a_secret_comes_from_a_file_of_the_user_alone_or_the_environment_never_from_arguments(
    terminal: Terminal, name: str, tmp_path: Path
) -> None:
    kept = tmp_path / "secret"
    here = ("--secret-file", str(kept))
    told = terminal.run("worker", "register", name, *here)
    secret = kept.read_text().strip()
    assert (told.code, kept.stat().st_mode & 0o777, len(secret)) == (0, 0o600, 43)
    assert secret not in told.said
    terminal.run("worker", "register", f"{name}-2", *here).is_one_clear_line("it cannot be created: File exists")
    assert terminal.run("worker", "show", f"{name}-2").code == 2  # not even registered
    assert terminal.ok("worker", "heartbeat", name, *here)["state"] == "idle"
    for mode in (0o640, 0o604, 0o620):
        kept.chmod(mode)
        terminal.run("worker", "heartbeat", name, *here).is_one_clear_line("nobody else may read or write")
    kept.chmod(0o600)
    (tmp_path / "empty").touch(0o600)
    for path, says in (("empty", "no worker's secret"), ("none", "No such file"), (".", "Is a directory")):
        words = ("worker", "heartbeat", name, "--secret-file", str(tmp_path / path))
        terminal.run(*words).is_one_clear_line(says)
    said = terminal.run("fire", name, "shutdown_requested", "--by", name, "--proof", f"secret:{secret}")
    said.is_one_clear_line("can read the arguments")
    for stranger in (terminal, terminal.set(INTERLOCK_WORKER_SECRET="x" * 43)):
        refused = stranger.run("worker", "shutdown", name, "--by", name)
        assert refused.code == 2
        refused.is_one_clear_line("needs the secret that it got as it registered", "If it is lost")
    shown = [terminal.run(*words).said for words in (("worker", "show", name), ("worker", "list"), ("show", name))]
    assert not [each for each in shown if secret in each]
    terminal.ok("worker", "shutdown", name, "--by", name, *here)
