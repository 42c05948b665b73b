"""What leads on, typed at a terminal: lost claims, workers that never were ready, a gate that is run again."""

from pathlib import Path
from typing import Any

import pytest

from tests.cli.terminal import LOOK_SECONDS, Terminal
from tests.waiting import eventually

SECONDS = 60.0
WHY = ("--by", "ann", "--reason", "it is gone")
AGENTS_PLAN = """
name: {name}
workstreams:
  - id: w
    tasks:
      - {{id: first, agent: {{instructions: Do it.}}, capabilities: [{name}]}}
      - {{id: second, agent: {{instructions: Do it.}}, capabilities: [{name}]}}
"""
GATED_PLAN = """
name: {name}
workstreams:
  - id: w
    tasks:
      - {{id: behind, shell: 'true'}}
      - {{id: agents, agent: {{instructions: Do it.}}, capabilities: [{name}]}}
    gates:
      - {{id: index, type: UNIT, shell: 'test -e there', blocks: [behind], reruns: 0}}
"""


def becomes(terminal: Terminal, state: str, *words: str) -> None:
    """Wait until what a command shows is in a state."""
    shown: dict[str, Any] = {}

    def is_so() -> bool:
        shown.update(terminal.ok(*words))
        return state in {shown.get("current_state"), shown.get("state")}

    try:
        eventually(is_so, SECONDS, LOOK_SECONDS)
    except AssertionError as never:
        stuck = terminal.run("stuck", "--all").said
        raise AssertionError(f"not {state} within {SECONDS} s, but: {shown}\n{stuck}") from never


def submitted(terminal: Terminal, folder: Path, plan: str, name: str) -> None:
    """Submit a plan, under its own name."""
    file = folder / "plan.yaml"
    file.write_text(plan.format(name=name))
    terminal.ok("run", str(file), "--name", name, "--detach")


def agent(terminal: Terminal, name: str, folder: Path, *words: str) -> tuple[str, ...]:
    """Register an agent; the options by which it proves who it is."""
    terminal.ok("worker", "register", name, "--can", name, "--secret-file", str(folder / "secret"), *words)
    return (name, "--secret-file", str(folder / "secret"))


def claiming(terminal: Terminal, name: str, folder: Path) -> tuple[tuple[str, ...], dict[str, Any]]:
    """An agent's options, and the claim of the first task of a plan that it has submitted."""
    submitted(terminal, folder, AGENTS_PLAN, name)
    me = agent(terminal, name, folder)
    return me, eventually(lambda: terminal.ok("worker", "claim", *me), SECONDS)


@pytest.mark.promise("O1")
def test_an_agent_that_lost_everything_but_its_secret_goes_on_where_it_was(
    terminal: Terminal, name: str, tmp_path: Path
) -> None:
    me, claimed = claiming(terminal, name, tmp_path)
    again = terminal.run("worker", "register", name, "--can", name)
    assert again.code == 2
    busy = terminal.run("worker", "claim", *me)
    assert busy.out.startswith(f"nothing fits worker {name} now; it holds 1 already")
    assert f"`interlock worker claim {name} --again`" in busy.out
    (found,) = terminal.ok("worker", "claim", *me, "--again")
    assert found == claimed
    secret = me[1:]
    terminal.ok("worker", "finish", name, str(found["token"]), *secret)
    becomes(terminal, "completed", "show", found["task"])


@pytest.mark.promise("O1")
def test_an_agent_whose_claim_was_revoked_has_room_at_once_and_claims_the_next_task(
    terminal: Terminal, name: str, tmp_path: Path
) -> None:
    me, lost = claiming(terminal, name, tmp_path)
    terminal.ok("fire", lost["task"], "user_cancelled", "--by", "ann", "--wait")
    taken = eventually(lambda: terminal.ok("worker", "claim", *me), SECONDS)
    assert taken["task"] != lost["task"]
    assert terminal.ok("worker", "claim", *me, "--again") == [taken]
    assert terminal.ok("worker", "show", name)["current_load"] == 1
    terminal.run("worker", "finish", name, str(lost["token"]), *me[1:]).is_one_clear_line("no longer valid")


@pytest.mark.parametrize(
    ("kind", "born", "ended"), [("worker", "initializing", "shutdown"), ("uet_worker", "SPAWNING", "TERMINATED")]
)
@pytest.mark.promise("O5")
def test_a_worker_that_never_became_ready_is_ended_by_command(
    terminal: Terminal, name: str, kind: str, born: str, ended: str
) -> None:
    made = terminal.ok("create", kind, name)
    assert made["current_state"] == born
    done = terminal.ok("worker", "shutdown", name, *WHY)
    assert done["tasks_left"] == 0
    becomes(terminal, ended, "show", made["id"])
    (left,) = terminal.ok("history", made["id"])
    assert (left["from_state"], left["triggered_by"], left["metadata"]["reason"]) == (born, "ann", "it is gone")


@pytest.mark.promise("O6")
def test_a_half_loaded_worker_finishes_its_task_before_it_ends(terminal: Terminal, name: str, tmp_path: Path) -> None:
    submitted(terminal, tmp_path, AGENTS_PLAN, name)
    me = agent(terminal, name, tmp_path, "--max-tasks", "2")
    claimed = eventually(lambda: terminal.ok("worker", "claim", *me), SECONDS)
    assert terminal.ok("worker", "shutdown", name, *WHY)["tasks_left"] == 1
    assert terminal.run("worker", "claim", *me, "--json").json is None, "it takes no more"
    assert terminal.ok("show", claimed["task"])["current_state"] == "running"
    terminal.ok("worker", "finish", name, str(claimed["token"]), *me[1:])
    becomes(terminal, "shutdown", "worker", "show", name)
    becomes(terminal, "completed", "show", claimed["task"])


@pytest.mark.promise("O11")
def test_a_gate_is_run_again_by_command_once_what_was_wrong_outside_is_mended(
    terminal: Terminal, name: str, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    submitted(terminal, tmp_path, GATED_PLAN, name)
    me = agent(terminal, name, tmp_path)
    claimed: dict[str, Any] = eventually(lambda: terminal.ok("worker", "claim", *me), SECONDS)
    gate = f"{name}/w/index"
    becomes(terminal, "FAILED", "show", gate)
    becomes(terminal, "cancelled", "show", f"{name}/w/behind")
    refused = terminal.run("gate", "rerun", gate, "--by", "mallory", "--reason", "I like to")
    refused.is_one_clear_line("'mallory' is not an operator")
    (tmp_path / "there").touch()
    terminal.ok("gate", "rerun", gate, "--by", "ann", "--reason", "the index is back")
    becomes(terminal, "completed", "show", f"{name}/w/behind~2")
    terminal.ok("worker", "finish", name, str(claimed["token"]), *me[1:])
    becomes(terminal, "succeeded", "run", "show", name)
