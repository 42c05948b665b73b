"""Whatever stands in an older database, every command that shows it ends well and sends nothing raw to the terminal."""

import re
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.cli.terminal import Answer, Terminal, json_values
from tests.cli.walking import LASTING, Words, every_command, said
from tests.legacy import rename
from tests.unit.test_names import HOSTILE

EVERY = dict(every_command())
WRITING = LASTING | {("backup", "take"), ("restore",)}
LISTING = {  # what shows instances to people, beside what is asked about one by its name
    ("list",), ("stuck", "--all"), ("runs",), ("worker", "list"), ("dead",), ("doctor",), ("archive", "list"),
    ("operator", "list", "--all"), ("override", "list"), ("patch", "list"), ("breaker", "list"), ("job", "list"),
    ("supervise", "worker", "list"), ("definitions", "deprecated"), ("audit", "verify"),
}  # fmt: skip
STYLES = re.compile(r"\x1b\[[0-9;]*m")
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\U000e0041]")
MARKED = "[/bold][red]\x1b]0;owned\x07\x1b[2J\u202e$(touch owned)"
NAMES = [value for value in (MARKED, *HOSTILE.values()) if "\0" not in value and "\ud800" not in value]


def ends_well(answer: Answer) -> None:
    """It answered, whatever the answer, and nothing in it steers or hides."""
    assert answer.code in (0, 1, 2), (answer.words, answer.said)
    assert "Traceback" not in answer.said, (answer.words, answer.said)
    assert not RAW.search(STYLES.sub("", answer.said)), (answer.words, ascii(answer.said))


@pytest.fixture
def hostile(terminal: Terminal, project: str, dba: "psycopg.Connection[Any]") -> list[str]:
    """Stories that are called so, as (id, name) found by both."""
    numbers = range(len(NAMES))
    answers = terminal.each([("create", "story", f"H-{project[-6:]}-{number}", "--json") for number in numbers])
    made = [answer.json["id"] for answer in answers]
    for story, name in zip(made, NAMES, strict=True):
        rename(dba, UUID(story), f"{name}{project[-6:]}")
    return made


def test_every_command_about_a_hostile_name_ends_well(terminal: Terminal, hostile: list[str], tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("nothing: of use\n")
    asked = [_about(words, EVERY[words], file, hostile[0]) for words in EVERY if words not in WRITING]
    shows: list[Words] = [(*verb, ref) for ref in hostile for verb in (("show",), ("history",))]
    for answer in terminal.each([*asked, *shows, *LISTING]):
        ends_well(answer)


def test_what_is_said_of_hostile_names_in_json_is_exact(terminal: Terminal, hostile: list[str]) -> None:
    answers = terminal.each([("show", ref, "--json") for ref in hostile])
    for answer, name in zip(answers, NAMES, strict=True):
        ends_well(answer)
        (shown,) = json_values(answer.out)
        assert shown["entity_id"].startswith(name)


GROUPS = sorted({words[:-1] for words in EVERY if len(words) > 1})
STEERS = "\x1b[31m\x1b]0;owned\x07\u202e\x9b2J\u200b[/bold]\n[red]"


def misused() -> list[Words]:
    """Command lines that are none, each with something hostile where click would repeat it."""
    said: list[Words] = [(STEERS,), (f"--{STEERS}",), ("list", "--limit", STEERS), ("list", f"--limit={STEERS}")]
    said += [("create", "story", "x", "--project", STEERS), ("show", "x", STEERS), ("up", f"--{STEERS}=1")]
    for group in GROUPS:
        said += [(*group, f"no{STEERS}"), (*group, f"-{STEERS}"), (*group, f"--{STEERS}")]
    for words, command in EVERY.items():
        said += [(*words, f"--no{STEERS}")]
        chosen = [each for each in command.params if each.opts[0].startswith("-") and _is_choice(each)]
        said += [(*words, each.opts[0], STEERS) for each in chosen]
    return said


def _is_choice(option: Any) -> bool:
    return isinstance(kind := option.type_descriptor.annotation, type) and issubclass(kind, Enum)


def test_words_that_are_no_command_are_repeated_spelled_out(terminal: Terminal) -> None:
    for answer in terminal.each(misused()):
        ends_well(answer)
        assert answer.code in (1, 2)
        assert answer.code == 1 or answer.err.splitlines()[-1].startswith("refused: "), answer.said


def test_words_that_are_no_command_are_json_where_that_is_asked_for(terminal: Terminal) -> None:
    answer = terminal.run("list", f"--{STEERS}", "--json")
    ends_well(answer)
    assert answer.json["error"] == "NoSuchOption"
    assert answer.json["exit_code"] == answer.code == 2


@pytest.mark.parametrize("words", [(f"--{STEERS}",), ("list", f"--{STEERS}"), ("run", "show", "x", STEERS)])
def test_a_screen_shows_what_was_typed_spelled_out(terminal: Terminal, words: Words) -> None:
    code, screens = terminal.seen(*words)
    assert code == 2
    shown = "".join(screens)
    assert "\\x1b]0;owned\\x07" in shown.replace("\n", "")
    assert not RAW.search(shown), ascii(shown)


def _about(words: Words, command: Any, file: Path, ref: str) -> Words:
    ends = ("--timeout", "1") if words == ("watch",) else ()  # the story goes on
    return (*(ref if word == "no-such-thing" else word for word in said(words, command, file)), *ends)
