"""A machine is begun at the command line, checked and drawn while it is written, and works as it was written."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.terminal import Terminal


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal in an empty folder, without a server."""
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return Terminal(tmp_path / "home")


def pytest_of(file: str) -> "subprocess.CompletedProcess[str]":
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", file],
        capture_output=True,
        text=True,
        check=False,
        env=env | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # ours are not the beginner's
    )


def test_what_new_writes_says_why_a_changed_machine_fails_its_test(here: Terminal) -> None:
    said = here.run("definitions", "new", "rollout").out
    assert "after a change, interlock down, then interlock up" in " ".join(said.split())
    machine = Path("rollout.py")
    machine.write_text(machine.read_text().replace("    subject: str", "    customer: str\n    subject: str", 1))
    failed = pytest_of("test_rollout.py")
    assert failed.returncode == 1
    assert "AssertionError: context: customer is missing" in failed.stdout
    assert "AttributeError" not in failed.stdout


def test_what_new_writes_is_sound_and_its_test_passes_as_written(here: Terminal) -> None:
    written = json.loads(here.run("definitions", "new", "rollout", "--json").out)
    assert written["files"] == ["rollout.py", "test_rollout.py"]
    assert "pytest test_rollout.py" in written["next"]
    checked = here.run("definitions", "check", "rollout.py")
    assert (checked.code, checked.out) == (0, "ok rollout 1.0.0\n"), checked.said
    passed = pytest_of("test_rollout.py")
    assert passed.returncode == 0, passed.stdout + passed.stderr
    assert "6 passed" in passed.stdout
    before = Path("rollout.py").read_text()
    again = here.run("definitions", "new", "rollout")
    assert again.code == 2
    again.is_one_clear_line("rollout.py exists already, and is not overwritten")
    assert Path("rollout.py").read_text() == before


def test_a_half_finished_file_is_checked_and_drawn(here: Terminal) -> None:
    assert here.run("definitions", "new", "rollout").code == 0
    file = Path("rollout.py")
    file.write_text(file.read_text().replace('T("cancel", "ready", "failed")', 'T("cancel", "ready", "faild")'))
    line = 1 + file.read_text().splitlines().index('        T("cancel", "ready", "faild"),')
    message = "'cancel' names the unknown state 'faild'; did you mean 'failed'?"
    checked = here.run("definitions", "check", "rollout.py")
    assert (checked.code, checked.out) == (2, f"rollout.py:{line}: {message}\n")
    told = here.run("definitions", "check", "rollout.py", "--json")
    assert told.json["faults"] == [{"file": "rollout.py", "line": line, "message": message}]
    assert (told.code, told.json["ok"], told.json["definitions"]) == (2, False, ["rollout 1.0.0"])
    drawn = here.run("definitions", "graph", "rollout.py")
    assert drawn.code == 0
    assert "    ready --> faild: cancel\n" in drawn.out
    assert drawn.err == f"rollout.py:{line}: {message}\n"


def test_a_registered_module_that_raises_is_one_clear_line(here: Terminal) -> None:
    Path("rollouts.py").write_text("from interlock import T\n\nraise KeyError('x')\n")
    broken = here.set(PYTHONPATH=str(Path.cwd()), INTERLOCK_DEFINITIONS="rollouts").run("definitions", "list")
    broken.is_one_clear_line(
        "INTERLOCK_DEFINITIONS names 'rollouts', which cannot be imported: ", "rollouts.py:3: KeyE"
    )
    wrong = here.run("definitions", "graph", "rollouts.py")
    wrong.is_one_clear_line("rollouts.py:3: KeyError: 'x'")
    nowhere = here.run("definitions", "check", "nowhere.py")
    assert nowhere.code == 2
    nowhere.is_one_clear_line("nowhere.py is no file")


def test_the_schemas_of_a_machine_are_shown(here: Terminal) -> None:
    """TYPED-6."""
    assert here.run("definitions", "new", "rollout").code == 0
    known = here.set(PYTHONPATH=str(Path.cwd()), INTERLOCK_DEFINITIONS="rollout")
    whole = known.run("definitions", "schema", "rollout").json
    assert whole["context"]["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert whole["context"]["required"] == ["subject"]
    assert [*whole["data"]] == ["start", "succeed"]
    assert known.run("definitions", "schema", "rollout", "start").json == whole["data"]["start"]
    refused = known.run("definitions", "schema", "rollout", "cancel")
    refused.is_one_clear_line("cancel of rollout 1.0.0 has no model: its data is any JSON object")
    shown = known.run("definitions", "show", "rollout", "--json").json
    assert shown["context"]["additionalProperties"] is False
    assert "integer, default 3" in known.run("definitions", "show", "rollout").out


def test_definitions_are_exported_into_a_folder_that_is_not_there_yet(here: Terminal) -> None:
    assert here.run("definitions", "export", "story", "--output", "m2/x.json").code == 0
    assert json.loads(Path("m2/x.json").read_text())[0]["type"] == "story"
    for words in (("--output", "m2/x.json/y.json"), ("--format", "sql", "--output", "m2/x.json")):
        refused = here.run("definitions", "export", *words)
        assert refused.code == 2
        refused.is_one_clear_line("m2/x.json", "name another place with --output")
