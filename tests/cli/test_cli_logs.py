"""`interlock run logs`: what tasks printed, for whoever runs plans."""

import json
from pathlib import Path

import pytest

from tests.cli.terminal import Terminal

FAILS_TWICE = r"""
name: {name}
workstreams:
  - id: build
    tasks:
      - id: compile
        shell: echo compiling; printf '\033[31mline %s\n' 1 2 3; exit 3
        retries: 1
        backoff: {{base: 0}}
      - {{id: link, command: [make], depends_on: [compile]}}
  - id: fine
    tasks:
      - {{id: give, shell: 'echo "[1, {{}}]" > "$INTERLOCK_OUTPUT"'}}
      - {{id: tell, shell: 'echo fine; echo "$V"', inputs: {{V: give}}}}
"""
PRINTED = ["compiling", *(f"\\x1b[31mline {each}" for each in (1, 2, 3))]


@pytest.fixture
def ended(terminal: Terminal, tmp_path: Path, name: str) -> str:
    """A run that has failed; its name."""
    file = tmp_path / "plan.yaml"
    file.write_text(FAILS_TWICE.format(name=name))
    done = terminal.run("run", str(file), "--name", name, "--timeout", "80")
    assert done.code == 1, done.said
    return name


@pytest.mark.promise("O19")
def test_what_a_task_printed_is_shown_escaped_and_its_run_shows_the_end(terminal: Terminal, ended: str) -> None:
    one = terminal.run("run", "logs", f"{ended}/build/compile")
    assert (one.code, one.out.splitlines()) == (0, PRINTED)
    assert "build/compile, attempt 2" in one.err
    given = terminal.run("run", "logs", f"{ended}/fine/give")
    assert (given.out, "result: [1, {}]" in given.err) == ("", True)
    followed = terminal.run("run", "logs", f"{ended}/build/compile", "--follow")
    assert followed.out.splitlines() == PRINTED, "the newest attempt, and the task has ended"
    every = terminal.run("run", "logs", ended).out
    assert [each for each in every.splitlines() if "attempt" not in each] == [*PRINTED, "fine", "[1, {}]"]
    assert [f"│ {each}" in terminal.run("run", "show", ended).out for each in PRINTED] == [True] * 4


def test_each_attempt_is_known_by_its_number_and_a_changed_file_is_told(terminal: Terminal, ended: str) -> None:
    first, second = (
        terminal.ok("run", "logs", f"{ended}/build/compile", "--attempt", number)[0] for number in ("1", "2")
    )
    assert [(each["attempt"], each["exit_code"], each["verified"]) for each in (first, second)] == [
        (1, 3, True),
        (2, 3, True),
    ]
    assert first["text"].startswith("compiling\n\x1b[31mline 1")
    (waiting,) = terminal.ok("run", "logs", f"{ended}/build/link")
    assert (waiting["attempt"], waiting["note"]) == (None, "it has not begun; it is cancelled")
    run = terminal.ok("run", "show", ended)["id"]
    (file,) = (each for each in (terminal.home / "output" / run).iterdir() if each.read_text() == "fine\n[1, {}]\n")
    file.write_text("fake\n[1, {}]\n")
    changed = terminal.run("run", "logs", f"{ended}/fine/tell")
    assert (changed.code, changed.out) == (1, "fake\n[1, {}]\n")
    assert "changed: " in changed.err
    lines = terminal.run("run", "logs", f"{ended}/fine/tell", "--follow", "--json").out.splitlines()
    assert [json.loads(each).get("verified", "text") for each in lines] == ["text", False]


def test_a_name_that_the_run_lacks_is_refused_with_the_one_that_was_meant(terminal: Terminal, ended: str) -> None:
    terminal.run("run", "logs", f"{ended}/build/compil").is_one_clear_line(
        "build/compil", "did you mean 'build/compile'?"
    )
    terminal.run("run", "logs", "no-such-run/x").is_one_clear_line("no-such-run")
