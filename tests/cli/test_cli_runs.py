"""`interlock run` and `runs`: plans, runs and how they end, as somebody at a terminal meets them."""

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.terminal import LOOK_SECONDS, Terminal, json_values
from tests.waiting import eventually

PLAN = """
name: {name}
workstreams:
  - id: build
    tasks:
      - {{id: compile, command: [make], capabilities: [nobody-offers-this]}}
      - {{id: link, command: [make], depends_on: [compile]}}
"""
WHY = ("--by", "ann", "--reason", "wrong branch")
EXAMPLES = Path(__file__).parents[2] / "examples" / "plans"
Detached = Callable[[], dict[str, Any]]


@pytest.fixture
def plan(tmp_path: Path, name: str) -> Path:
    """A plan that nobody can carry out."""
    file = tmp_path / "plan.yaml"
    file.write_text(PLAN.format(name=name))
    return file


@pytest.fixture
def detached(terminal: Terminal, plan: Path) -> Detached:
    """Runs the plan and returns at once; the run."""

    def run() -> dict[str, Any]:
        found: dict[str, Any] = terminal.ok("run", str(plan), "--detach")
        return found

    return run


def test_a_run_that_has_ended_is_told_to_whoever_watches_it_later(terminal: Terminal, detached: Detached) -> None:
    name = detached()["name"]
    terminal.ok("run", "cancel", name, *WHY)
    watched = terminal.run("run", "watch", name)
    assert watched.code == 3
    assert f"run {name}: canceled" in watched.out


def test_hello_succeeds_and_says_what_happened(terminal: Terminal) -> None:
    done = terminal.run("run", str(EXAMPLES / "hello.yaml"), "--timeout", "80")
    assert done.code == 0, done.said
    assert "task greet/goodbye: validating → completed" in done.out
    assert done.out.splitlines()[-1].endswith(" succeeded")


def test_in_a_terminal_a_run_is_a_tree_that_lives(terminal: Terminal, tmp_path: Path, name: str) -> None:
    file = tmp_path / "plan.yaml"
    tasks = "{id: first, shell: sleep 1}, {id: second, command: [echo, done], depends_on: [first]}"
    file.write_text(f"name: {name}\nworkstreams: [{{id: build, tasks: [{tasks}]}}]\n")
    code, screens = terminal.seen("run", str(file), "--timeout", "80")
    assert code == 0, screens
    assert any(re.search(r"▶ first {2}running {2}\d\.\ds {2}on \S+", screen) for screen in screens)
    assert any("second  pending" in screen for screen in screens), "what waits is shown as well"
    assert any(re.search(r"build {2}executing {2}─{20} 0/2", screen) for screen in screens)
    last = screens[-1]
    assert re.search(rf"✓ {name}\S* {{2}}succeeded .*━{{20}} 2/2 .*2 completed {{2}}\d", last)
    for task in ("first", "second"):
        assert re.search(rf"✓ {task} {{2}}completed {{2}}\d\.\ds", last)
    assert re.search(rf"run {name}\S* succeeded$", last.strip())


def test_a_run_of_one_failing_task_ends_with_1_and_its_exit_code(terminal: Terminal, tmp_path: Path, name: str) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text(f"name: {name}\nworkstreams: [{{id: w, tasks: [{{id: t, command: [/bin/false], retries: 0}}]}}]\n")
    done = terminal.run("run", str(file), "--json", "--timeout", "80")
    assert done.code == 1, done.said
    assert done.json["state"] == "failed"
    assert done.json["workstreams"][0]["tasks"][0]["exit_code"] == 1


def test_a_detached_run_is_listed_shown_and_known_by_its_names(terminal: Terminal, detached: Detached) -> None:
    run = detached()
    assert set(run) == {"id", "name", "project"}
    assert run["name"] in [each["name"] for each in terminal.ok("runs", "--limit", "1000")]
    by_name, by_id, by_both = (
        terminal.ok("run", "show", ref) for ref in (run["name"], run["id"], f"run/{run['name']}")
    )
    assert {each["id"] for each in (by_name, by_id, by_both)} == {run["id"]}
    assert [each["name"] for each in by_name["workstreams"][0]["tasks"]] == ["build/compile", "build/link"]
    text = terminal.run("run", "show", run["name"]).out
    for word in (run["name"], "build", "compile", "link", "0/2"):
        assert word in text


@pytest.mark.parametrize("words", [(), ("--watch",), ("--detach", "-w")], ids=" ".join)
def test_watching_stops_in_time_and_the_run_goes_on(terminal: Terminal, plan: Path, words: tuple[str, ...]) -> None:
    stopped = terminal.run("run", str(plan), "--timeout", "1", *words)
    assert stopped.code == 124, stopped.said
    assert "goes on" in stopped.err
    assert "interlock run cancel" in stopped.err


def test_ctrl_c_detaches_and_says_how_to_watch_and_cancel(terminal: Terminal, plan: Path, name: str) -> None:
    with terminal.start("run", str(plan), "--name", name) as process:
        eventually(lambda: terminal.run("run", "show", name).code == 0, timeout=60, every=LOOK_SECONDS)
        assert process.stdout is not None
        assert f"run {name}: " in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    for command in (f"run watch {name}", f"run cancel {name} --by"):
        assert command in err
    eventually(lambda: terminal.ok("run", "show", name)["state"] == "running", timeout=60, every=LOOK_SECONDS)


def test_a_canceled_run_ends_with_3_for_whoever_watches_and_is_not_canceled_twice(
    terminal: Terminal, detached: Detached
) -> None:
    name = detached()["name"]
    with terminal.start("run", "watch", name, "--json") as watching:
        assert watching.stdout is not None
        assert json.loads(watching.stdout.readline())["was"] is None  # where it stands; from here on it watches
        canceled = terminal.run("run", "cancel", name, *WHY, "--json")
        out, err = watching.communicate(timeout=90)
    assert canceled.code == 0, canceled.said
    assert watching.returncode == 3, err
    moves = {(each["name"], each["state"]) for each in json_values(out)}
    assert {(name, "canceled"), ("build", "cancelled"), ("build/compile", "cancelled")} <= moves
    event = terminal.ok("history", f"run/{name}")[-1]
    assert (event["triggered_by"], event["metadata"]["reason"]) == ("ann", "wrong branch")
    assert json.loads(canceled.out)["reason"] == "wrong branch"
    again = terminal.run("run", "cancel", name, *WHY)
    assert again.code == 2
    assert "canceled" in again.said


def test_a_canceled_run_is_resumed_as_another(terminal: Terminal, detached: Detached) -> None:
    old = detached()
    early = terminal.run("run", "resume", old["name"], "--detach")
    assert early.code == 2
    early.is_one_clear_line(old["name"], "failed or was canceled")
    terminal.ok("run", "cancel", old["name"], *WHY)
    new = terminal.ok("run", "resume", old["name"], "--by", "bob", "--detach")
    assert new["id"] != old["id"]
    shown = terminal.ok("run", "show", new["name"])
    assert (shown["retry_of"], shown["created_by"]) == (old["id"], "bob")


def test_a_plan_with_faults_is_refused_with_file_line_and_field(terminal: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("name: x\nworkstreams:\n  - id: w\n    tasks:\n      - {id: t, comand: [x]}\n")
    before = terminal.ok("runs", "--limit", "1000")
    for words in (("run", str(file)), ("run", "check", str(file))):
        answer = terminal.run(*words)
        assert answer.code == 2
        assert f'{file}:5:17: workstreams[0].tasks[0].comand: unknown field; did you mean "command"?' in answer.err
    as_json = terminal.run("run", str(file), "--json")
    assert (as_json.code, as_json.json["error"]) == (2, "PlanInvalid")
    assert terminal.ok("runs", "--limit", "1000") == before


@pytest.mark.parametrize(
    "words",
    [
        ("run", "/nowhere/plan.yaml"),
        ("run", "/"),
        ("run", "/dev/zero"),
        ("run", "show", "nobody"),
        ("run", "watch", ""),
        ("run", "cancel", "nobody", *WHY),
        ("run", "resume", "nobody"),
        ("run", "show", "x" * 5000),
        ("run", str(EXAMPLES / "hello.yaml"), "--name", "no/good"),
        ("run", str(EXAMPLES / "hello.yaml"), "--priority", "5000"),
    ],
    ids=lambda words: " ".join(words)[-30:],
)
def test_what_cannot_be_run_is_refused_in_one_line(terminal: Terminal, words: tuple[str, ...]) -> None:
    answer = terminal.run(*words)
    assert answer.code == 2, answer.said
    answer.is_one_clear_line()


TASK = "name: x\nworkstreams:\n  - id: w\n    tasks:\n      - {{id: t, command: [x], {}}}\n"


@pytest.mark.parametrize("asked", ["reads: [/]", "reads: [HOME/run]", "reads: [/proc/1]", "reads: [gone]"])
def test_check_refuses_what_run_does_without_a_server(terminal: Terminal, tmp_path: Path, asked: str) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text(TASK.format(asked.replace("HOME", str(terminal.home))))
    checked, run = terminal.each([("run", "check", str(file)), ("run", str(file))])
    assert (checked.code, run.code) == (2, 2), checked.said
    checked.is_one_clear_line("reads: ")
    assert checked.err == run.err


def test_check_refuses_a_patch_outside_of_the_plans_folder(tmp_path: Path) -> None:
    file = tmp_path / "plan.yaml"
    patched = "    tasks:\n      - {id: t, patch: ../../../../etc/shadow}\n"
    file.write_text(f"name: x\nrepository: {{path: gone}}\nworkstreams:\n  - id: w\n{patched}")
    answer = Terminal(tmp_path / "never").run("run", "check", str(file))
    assert answer.code == 2
    answer.is_one_clear_line("task w/t: patch ../../../../etc/shadow is outside the plan's folder")


def test_a_name_is_taken_once(terminal: Terminal, plan: Path, name: str) -> None:
    words = ("run", str(plan), "--detach", "--name", name)
    terminal.ok(*words)
    again = terminal.run(*words)
    assert again.code == 2
    again.is_one_clear_line(name, "already")


def test_plans_are_checked_and_described_without_a_server(tmp_path: Path) -> None:
    here = Terminal(tmp_path / "never")
    checked, schema, bare, running, runs = here.each(
        [
            ("run", "check", str(EXAMPLES / "delivery.yaml")),
            ("run", "--schema"),
            ("run",),
            ("run", str(EXAMPLES / "hello.yaml")),
            ("runs",),
        ]
    )
    assert checked.code == 0
    assert "delivery: 2 workstreams, 5 tasks" in checked.out
    assert json.loads(schema.out)["$schema"].startswith("https://json-schema.org/")
    assert "Examples:" in bare.said
    for answer in (running, runs):
        assert answer.code == 1
        answer.is_one_clear_line("interlock up")
    assert not here.home.exists()
