"""Change control at the command line: compare, lock, refuse what changed without a version, move what is alive."""

import json
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from interlock.cli.instances.instances import _print_result
from interlock.workers.client.receipts import Receipt
from interlock.workflows.forms.start_log import held_log
from tests.cli.terminal import Terminal
from tests.waiting import eventually

MINE = """
from dataclasses import replace
from interlock.workflows.definition import Definition, T

LAMP = Definition(
    type="lamp", version="{version}", summary="A lamp.", states=("off", "on", "broken"), initial="off",
    terminal=frozenset({{"broken"}}),
    transitions=(T("press", "off", "on"), T("fall", ("off", "on"), "broken"), {more}),
)
WORKFLOWS = {{("lamp", LAMP.version): LAMP}}
"""


@pytest.fixture
def mine(tmp_path: Path) -> Terminal:
    """A terminal of a user with one machine in a module of their own, and no server."""
    write(tmp_path)
    return Terminal(tmp_path / "home", {"INTERLOCK_DEFINITIONS": "lamps", "PYTHONPATH": str(tmp_path)})


def write(directory: Path, version: str = "1.0.0", more: str = "") -> None:
    file = directory / "lamps.py"
    file.write_text(MINE.format(version=version, more=more))
    Path(cache_from_source(file)).unlink(missing_ok=True)  # valid for a file of the same second and size


def test_a_changed_definition_without_a_new_version_is_refused_with_the_version_to_give(
    mine: Terminal, tmp_path: Path
) -> None:
    locked = mine.run("definitions", "lock", "--json")
    assert (locked.code, locked.json) == (0, {"locked": ["lamp 1.0.0"]})
    assert json.loads((tmp_path / "lamps.lock").read_text())["form"]["states"]["broken"] == {"terminal": True}
    checked = mine.run("definitions", "check", "--json")
    assert (checked.code, checked.json["ok"], checked.json["changed"]) == (0, True, [])
    write(tmp_path, more='T("release", "on", "off")')
    checked = mine.run("definitions", "check", "--json")
    assert checked.code == 2
    (says,) = checked.json["changed"]
    assert "lamp 1.0.0 was changed without a new version: make it 1.1.0" in says
    refused = mine.run("definitions", "lock")
    assert refused.code == 2
    refused.is_one_clear_line("make it 1.1.0")
    write(tmp_path, version="1.0.1", more='T("release", "on", "off")')
    wrong = mine.run("definitions", "check")
    assert wrong.code == 2
    assert "lamp 1.0.1 must be 1.1.0" in wrong.said


def test_a_lock_that_cannot_be_read_is_one_clear_line(mine: Terminal, tmp_path: Path) -> None:
    (tmp_path / "lamps.lock").write_text("{}\n")
    broken = mine.run("definitions", "check")
    assert broken.code == 2
    broken.is_one_clear_line("lamps.lock:1", "is not a valid entry")


def test_versions_are_compared_and_a_wrong_number_exits_2(tmp_path: Path) -> None:
    here = Terminal(tmp_path)
    right, wrong = here.each(
        [("definitions", "diff", each, "1.0.0", "1.1.0", "--json") for each in ("task", "workstream")]
    )
    assert (right.code, right.json["ok"], right.json["comparisons"][0]["part"]) == (0, True, "MINOR")
    assert (wrong.code, wrong.json["ok"], wrong.json["comparisons"][0]["wanted"]) == (2, False, "2.0.0")
    told = here.run("definitions", "diff", "workstream", "1.0.0", "1.1.0")
    assert "state paused added" in told.out
    assert "it must be 2.0.0" in told.out


def test_the_code_is_compared_with_a_file_that_was_exported_or_locked_earlier(tmp_path: Path) -> None:
    here, file = Terminal(tmp_path), tmp_path / "all.json"
    here.run("definitions", "export", "--output", str(file))
    assert here.ok("definitions", "diff", "--file", str(file)) == {"ok": True, "comparisons": [], "new": [], "gone": []}
    exported: list[dict[str, Any]] = json.loads(file.read_text())
    story = next(each for each in exported if each["type"] == "story")
    story["transitions"] = story["transitions"][:-1]
    file.write_text(json.dumps([story]))
    changed = here.run("definitions", "diff", "story", "--file", str(file), "--json")
    assert changed.code == 2
    (comparison,) = changed.json["comparisons"]
    assert (comparison["part"], comparison["wanted"]) == ("MINOR", "1.1.0")
    assert "rules" in comparison["unseen"]
    assert here.run("definitions", "diff", "story", "1.0.0", "1.0.0", "--file", str(file), "--json").code == 2
    lock = Path(__file__).parents[2] / "workflows" / "definitions.lock"
    assert here.ok("definitions", "diff", "--file", str(lock))["ok"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "nothing to compare with"),
        (("task", "1.0.0"), "give TYPE OLD NEW"),
        (("task", "1.1.0", "1.0.0"), "name the older version first"),
        (("task", "1.0.0", "9.0.0"), "task has no version 9.0.0 there. Its versions: 0.2.0, 1.0.0, 1.1.0"),
        (("saga", "1.0.0", "2.0.0"), "none of that type"),
        (("--file", "/nowhere.json"), "/nowhere.json cannot be read"),
        (("task", "one", "two"), "'one' is not MAJOR.MINOR.PATCH"),
    ],
)
def test_what_cannot_be_compared_is_one_clear_line(tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    answer = Terminal(tmp_path).run("definitions", "diff", *words)
    assert answer.code == 2
    answer.is_one_clear_line(says)


def test_the_code_is_what_the_database_has_recorded(terminal: Terminal) -> None:
    assert terminal.ok("definitions", "diff", "--recorded")["ok"]


def test_a_live_instance_moves_to_another_version_and_back(
    terminal: Terminal, project: str, name: str, dba: "psycopg.Connection[Any]"
) -> None:
    terminal.ok("operator", "grant", name, "--by", "ann", "--reason", "a test")
    itself = terminal.set(INTERLOCK_WORKER_SECRET=terminal.ok("create", "worker", name)["secret"])
    itself.ok("fire", name, "registration_complete", "--by", name, "--proof", "secret", "--wait")
    terminal.ok("fire", name, "suspend", "--by", "ann", "--data", '{"reason": "a test"}', "--wait")
    words = (
        "definitions",
        "migrate",
        "worker",
        "--from",
        "1.1.0",
        "--to",
        "1.0.0",
        "--only",
        name,
        "--reason",
        "why not",
    )
    tried = terminal.run(*words, "--by", name, "--dry-run", "--json")
    assert (tried.code, tried.json["found"], tried.json["moved"]) == (2, 1, 0)
    assert tried.json["stays"][0]["why"] == ["1.0.0 has no state 'suspended': give --map suspended=STATE"]
    told = terminal.run(*words, "--by", name)
    assert told.code == 2
    assert "0 of 1 moved" in told.out
    moved = terminal.ok(*words, "--by", name, "--map", "suspended=idle")
    assert (moved["moved"], moved["stays"]) == (1, [])
    shown = terminal.ok("show", name)
    assert (shown["definition_version"], shown["current_state"]) == ("1.0.0", "idle")
    assert terminal.ok("audit", "verify")["ok"]
    again = terminal.run(*words, "--by", name)
    assert (again.code, "1 of those named do not use worker 1.1.0" in again.out) == (0, True)
    nobody = terminal.run(*words, "--by", "nobody-at-all")
    assert nobody.code == 2
    nobody.is_one_clear_line("'nobody-at-all' is not an operator")
    badly = terminal.run(*words, "--by", name, "--map", "suspended")
    assert badly.code == 2
    badly.is_one_clear_line("is not OLD=NEW")


def test_firing_what_is_deprecated_prints_the_warning(capsys: pytest.CaptureFixture[str]) -> None:
    result = {"from": "analysis", "to": "blocked", "deprecated": ["trigger block of story 1.0.0 is deprecated"]}
    _print_result("S-1", Receipt("r", "applied", uuid4(), "block", result=result))
    told = capsys.readouterr()
    assert "applied S-1 block: analysis → blocked" in told.out
    assert "warning trigger block of story 1.0.0 is deprecated" in told.err


def test_what_is_deprecated_says_so_wherever_it_is_used(
    terminal: Terminal, project: str, name: str, dba: "psycopg.Connection[Any]"
) -> None:
    terminal.ok("operator", "grant", name, "--by", "ann", "--reason", "a test")
    words = ("definitions", "deprecate", "test_gate", "1.1.0", "--state", "BLOCKED", "--reason", "gates just wait")
    said = terminal.ok(*words, "--by", name, "--remove-after", "2100-01-31", "--guide", "leave it PENDING")
    assert (said["kind"], said["name"], said["uses"], said["deprecated_by"]) == ("state", "BLOCKED", 0, name)
    again = terminal.run(*words, "--by", name)
    assert again.code == 2
    again.is_one_clear_line("deprecated already", name)
    (row,) = [each for each in terminal.ok("definitions", "deprecated") if each["type"] == "test_gate"]
    assert row["remove_after"].startswith("2100-01-31")
    key = ("test_gate", "1.1.0")
    (listed,) = [each for each in terminal.ok("definitions", "list") if (each["type"], each["version"]) == key]
    (told,) = listed["deprecated"]
    assert told.startswith(
        "state BLOCKED of test_gate 1.1.0 is deprecated and will be removed after 2100-01-31: gates "
    )
    assert terminal.ok("definitions", "show", "test_gate")["deprecated"] == [told]
    assert "leave it PENDING" in terminal.run("definitions", "show", "test_gate").out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("deprecate", "test_gate", "1.0.0", "--reason", "x", "--by", "nobody-at-all"), "is not an operator"),
        (("deprecate", "test_gate", "9.0.0", "--reason", "x"), "no version '9.0.0'"),
        (("deprecate", "test_gate", "1.0.0", "--reason", "x", "--state", "LIMBO"), "has no state 'LIMBO'"),
        (("deprecate", "test_gate", "1.0.0", "--reason", "x", "--trigger", "fly"), "has no trigger 'fly'"),
        (("deprecate", "test_gate", "1.0.0", "--reason", "x", "--state", "A", "--trigger", "b"), "not both"),
        (("remove", "test_gate", "1.0.0", "--reason", "x", "--by", "nobody-at-all"), "is not an operator"),
    ],
)
def test_a_deprecation_that_makes_no_sense_is_one_clear_line(
    terminal: Terminal, words: tuple[str, ...], says: str
) -> None:
    answer = terminal.run("definitions", *words)
    assert answer.code == 2
    answer.is_one_clear_line(says)


def test_a_version_that_is_not_deprecated_or_not_yet_over_is_not_removed(
    terminal: Terminal, name: str, dba: "psycopg.Connection[Any]"
) -> None:
    terminal.ok("operator", "grant", name, "--by", "ann", "--reason", "a test")
    words = ("definitions", "remove", "uet_worker", "1.0.0", "--reason", "over", "--by", name)
    never = terminal.run(*words)
    assert never.code == 2
    never.is_one_clear_line("uet_worker 1.0.0 is not deprecated: interlock definitions deprecate uet_worker 1.0.0")
    late = ("definitions", "deprecate", "uet_worker", "1.0.0", "--reason", "over", "--by", name, "--remove-after")
    never = terminal.run(*late, "some day")
    assert never.code == 2
    never.is_one_clear_line("--remove-after 'some day' is neither")
    past = terminal.run(*late, "2020-01-01")
    assert past.code == 2
    past.is_one_clear_line("is in the past")
    terminal.ok(*late, "90d")
    early = terminal.run(*words)
    assert early.code == 2
    early.is_one_clear_line("can be removed after", "not earlier")


def test_the_newest_version_is_not_removed_under_those_that_are_still_to_begin(
    terminal: Terminal, name: str, dba: "psycopg.Connection[Any]"
) -> None:
    terminal.ok("operator", "grant", name, "--by", "ann", "--reason", "a test")
    words = ("step", "0.1.0", "--reason", "nobody steps any more", "--by", name)
    said = terminal.run("definitions", "deprecate", *words, "--remove-after", "1s")
    assert (said.code, "every new step still gets this version" in said.out) == (0, True)
    eventually(
        lambda: "0.1.0 is the newest version in the code" in terminal.run("definitions", "remove", *words).said,
        timeout=60,
    )
    assert terminal.run("definitions", "remove", *words).code == 2


def test_a_version_is_removed_by_two_and_a_deprecation_is_taken_back(terminal: Terminal, name: str) -> None:
    terminal.ok("operator", "grant", name, "--by", "ann", "--reason", "a test")
    part, why = ("task", "0.2.0"), ("--reason", "nobody is left")
    terminal.ok("definitions", "deprecate", *part, *why, "--by", name, "--remove-after", "0s")
    assert terminal.ok("definitions", "deprecate", *part, "--undo", *why, "--by", "ann")["by"] == "ann"
    terminal.ok("definitions", "deprecate", *part, *why, "--by", name, "--remove-after", "0s")
    both = terminal.run("definitions", "remove", *part, "--approve", "--withdraw", *why, "--by", name)
    both.is_one_clear_line("not both")
    terminal.ok("definitions", "remove", *part, *why, "--by", name)
    alone = terminal.run("definitions", "remove", *part, "--approve", *why, "--by", name)
    assert alone.code == 2
    alone.is_one_clear_line("another operator must approve it")
    terminal.ok("definitions", "remove", *part, "--withdraw", *why, "--by", "ann")
    terminal.ok("definitions", "remove", *part, *why, "--by", name)
    done = terminal.ok("definitions", "remove", *part, "--approve", *why, "--by", "ann")
    assert done == {"removed": "task 0.2.0", "by": "ann", "reason": "nobody is left"}
    (row,) = [each for each in terminal.ok("definitions", "deprecated") if (each["type"], each["version"]) == part]
    assert (row["state"], row["removal_proposed_by"], row["removed_by"]) == ("removed", name, "ann")
    assert terminal.ok("audit", "verify")["ok"]


def test_a_narrowed_trigger_is_listed_and_shown_until_that_is_undone(terminal: Terminal, project: str) -> None:
    words = ("definitions", "narrow", "sprint", "start", "--project", project)
    made = terminal.ok(*words, "--to", "machinery,operator", "--reason", "only leads start")
    assert (made["current_state"], made["context"]["to"]) == ("in_force", ["machinery", "operator"])
    (row,) = terminal.ok("definitions", "narrowed", "--project", project)
    assert (row["type"], row["trigger"], row["to"], row["reason"]) == (
        *("sprint", "start", ["machinery", "operator"]),
        "only leads start",
    )
    shown = terminal.ok("definitions", "show", "sprint", "--project", project)
    assert shown["narrowed"] == {"start": ["machinery", "operator"]}
    assert "narrowed" not in terminal.ok("definitions", "show", "sprint")
    terminal.run(*words, "--reason", "neither").is_one_clear_line("give --to")
    assert terminal.ok(*words, "--undo", "--reason", "over")["current_state"] == "lifted"
    assert terminal.ok("definitions", "narrowed", "--project", project) == []


def test_live_instances_are_handed_over_and_come_back(
    terminal: Terminal, project: str, name: str, tmp_path: Path
) -> None:
    terminal.ok("operator", "grant", name, "--by", "ann", "--reason", "a test")
    terminal.ok("create", "story", name)
    words = ("definitions", "handover", "story", "--output", str(tmp_path / "to"), "--reason", "a test", "--by", name)
    words = (*words, "--project", project)
    (tried,) = terminal.ok(*words, "--dry-run")
    assert (tried["definition"], tried["moved"]["moved"], tried["written"]) == ("story@1.0.0", 1, None)
    assert not (tmp_path / "to").exists()
    told = terminal.run(*words, "--only", name)
    assert told.code == 0, told.said
    assert "froze 1 of 1: story@1.0.0" in told.out
    (line,) = (tmp_path / "to" / "story-1.0.0.jsonl").read_text().splitlines()
    compile((tmp_path / "to" / "story_1_0_0.py").read_text(), "story_1_0_0.py", "exec")
    late = terminal.run("fire", name, "design_complete", "--by", "ann", "--wait")
    assert late.code == 2
    assert "goes on in another system" in late.said
    assert "frozen: it goes on in another system" in terminal.run("show", name).out
    log = tmp_path / "to" / "story-1.0.0.started.jsonl"
    log.write_text(json.dumps({"id": json.loads(line)["instance"]["id"], "status": "starting"}) + '\n{"id": "half')
    for option in ("--back", "--confirm"):
        (nothing,) = terminal.ok(*words, option)
        assert (nothing["moved"]["found"], nothing["moved"]["moved"]) == (1, 0)
    log.unlink()
    terminal.run(*words, "--back").is_one_clear_line("bring it from where", "--without-log")
    with held_log(tmp_path / "to" / "story-1.0.0.jsonl"):
        terminal.run(*words, "--back").is_one_clear_line("is in use")
    log.unlink()
    assert "gave back 1 of 1" in terminal.run(*words, "--back", "--without-log").out
    assert not (tmp_path / "to" / "story-1.0.0.jsonl").read_text()
    terminal.ok("fire", name, "design_complete", "--by", "ann", "--wait")
    both = terminal.run(*words, "--back", "--confirm")
    assert both.code == 2
    both.is_one_clear_line("--confirm, --back and --only")
