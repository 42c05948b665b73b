"""What every command promises, whatever it is for: it explains itself, answers in JSON, and never with a traceback."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.terminal import Answer, Shell, Terminal, json_values
from tests.cli.walking import LASTING, Words, every_command, options, said

EVERY = dict(every_command())
STAYING = LASTING | {("mcp", "serve")}
NOT_JSON = {  # servers; what is JSON in any case; a script for a shell
    ("metrics", "serve"), ("api", "serve"), ("api", "document"), ("mcp", "serve"), ("completion",),
}  # fmt: skip
MAKING = {
    ("operator", "grant"), ("worker", "register"), ("job", "submit"), ("supervise", "worker", "create"),
    ("backup", "take"),
}  # fmt: skip
CLOSED = "127.0.0.1:1"  # nobody listens there


def asked(tmp_path: Path, *, without: set[Words]) -> list[Words]:
    """Every command, about what does not exist, from a file that says nothing of use."""
    file = tmp_path / "file"
    file.write_text("nothing: of use\n")
    return [said(words, command, file) for words, command in EVERY.items() if words not in without]


@pytest.fixture(scope="module")
def shell() -> Iterator[Shell]:
    """One for who has no installation: `api document` imports for more than a second."""
    made = Shell()
    yield made
    made.end()


def is_an_answer(answer: Answer) -> None:
    assert answer.code in (0, 1, 2), (answer.words, answer.said)
    assert "Traceback" not in answer.said, (answer.words, answer.said)


def test_every_command_has_an_example_of_itself_and_says_what_each_word_is() -> None:
    without, silent = [], []
    for words, command in EVERY.items():
        says, _, examples = (command.help or "").partition("Example")
        same = re.match(r"The same as `(interlock [^`]+)`", says)
        if (same[1] if same else f"interlock {' '.join(words)}".removesuffix(" start")) not in examples:
            without.append(words)
        silent += [(words, each.name) for each in command.params if not each.help]
    assert (without, silent) == ([], [])


def test_every_command_that_tells_something_can_tell_it_in_json() -> None:
    assert {words for words, command in EVERY.items() if "--json" not in options(command)} == NOT_JSON


def test_with_no_database_every_command_answers_in_one_line_or_does_without(tmp_path: Path, shell: Shell) -> None:
    away = {"DATABASE_URL": f"postgresql://{CLOSED}/x", "BROKER_URL": f"redis://{CLOSED}"}
    nowhere = Terminal(tmp_path / "home", away, shell=shell)
    for answer in nowhere.each(asked(tmp_path, without=STAYING)):
        is_an_answer(answer)
        if answer.code and answer.err and answer.words[0] != "run":  # a line for each fault of a plan
            answer.is_one_clear_line()


def test_where_there_is_no_home_every_command_answers_in_one_line_or_does_without(tmp_path: Path, shell: Shell) -> None:
    nowhere = Terminal(Path("/dev/null/home"), shell=shell)
    for answer in nowhere.each(asked(tmp_path, without=STAYING)):
        is_an_answer(answer)


def test_of_what_does_not_exist_every_command_says_so_in_one_line(terminal: Terminal, tmp_path: Path) -> None:
    for answer in terminal.each(asked(tmp_path, without=STAYING | MAKING)):
        is_an_answer(answer)
        if answer.code == 2 and answer.words[0] != "run":
            answer.is_one_clear_line()


def test_what_every_command_says_in_json_is_json(terminal: Terminal, tmp_path: Path) -> None:
    commands = [
        words
        for words in asked(tmp_path, without=STAYING | MAKING)
        if not any(words[: len(each)] == each for each in NOT_JSON)
    ]
    for answer in terminal.each([(*words, "--json") for words in commands]):
        is_an_answer(answer)
        assert json_values(answer.out), answer.words
