"""What cannot be accepted is refused: exit code 2, one line that names what is wrong, and nothing written."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.cli.terminal import Answer, Terminal
from tests.cli.test_cli_contracts import OTHERS

PROJECT = "7a0e0f6e-0d2c-4a77-9a35-3f1b4d1f0c11"
LIMIT = 262_144


def pull_request(number: int = 1, **changed: Any) -> dict[str, Any]:
    first = {"sha": "1f", "author": "ann", "at": "2026-01-01T00:00:00Z", "subject": "Begin"}
    whole = {"repo": "bad-input", "number": number, "title": "T", "merged_by": "bob"}
    return whole | {"merged_at": "2026-01-02T00:00:00Z", "commits": [first]} | changed


def commit(**changed: Any) -> dict[str, Any]:
    return {"sha": "2f", "author": "ann", "at": "2026-01-01T01:00:00Z", "subject": "More"} | changed


def refused(answers: Sequence[Answer], *naming: str) -> None:
    for answer in answers:
        assert answer.code == 2, (answer.words, answer.said)
        answer.is_one_clear_line(*naming)


def test_an_unknown_type_is_refused_with_those_there_are(terminal: Terminal) -> None:
    commands = [("create", "saga", "X"), ("definitions", "show", "saga")]
    refused(terminal.each([*commands, ("definitions", "graph", "saga")]), "saga", "story, ", "ticket, ")
    refused([terminal.run("definitions", "show", "story", "--version", "9.9.9")], "9.9.9", "1.0.0")


def test_an_unknown_instance_is_refused(terminal: Terminal) -> None:
    names = ("nobody", "story/nobody", "01a1fc6b-8e51-77ab-a8ef-2ce9bef5ae31", "", "x" * 5000, "' OR 1=1 --")
    commands = [("show", ref) for ref in names]
    commands += [("history", "nobody"), ("watch", "nobody"), ("fire", "nobody", "block", "--by", "ann")]
    refused(terminal.each(commands), "there is no instance")


def test_an_unknown_trigger_is_refused_with_those_there_are(terminal: Terminal, story: str) -> None:
    refused([terminal.run("fire", story, "explode", "--by", "ann")], "explode", "design_complete")
    assert terminal.ok("show", story)["requests"] == []


def test_a_linked_entity_that_does_not_exist_is_refused(terminal: Terminal, project: str, name: str) -> None:
    create = ("create", "pr_review", name, "--context", '{"story_id": "nobody"}')
    refused([terminal.run(*create)], "nobody")
    assert terminal.run("show", name).code == 2


def test_an_entity_that_exists_is_refused(terminal: Terminal, project: str, story: str) -> None:
    refused([terminal.run("create", "story", story)], f"story/{story}", "exists")


NO_OBJECTS = {
    '{"a": ': "not JSON",
    "": "not JSON",
    "[1, 2]": "JSON object",
    '"words"': "JSON object",
    "null": "JSON object",
    '{"a": NaN}': "NaN",
    '{"a": -Infinity}': "Infinity",
    '{"a": 1e999}': "JSON",
    '{"a": "\\u0000"}': "NUL",
    '{"a": "\\ud800"}': "U+D800",
    "[" * 50_000: "not JSON",
    "@/nowhere/context.json": "/nowhere/context.json",
}


def test_what_is_not_a_json_object_or_beyond_the_limit_is_refused(
    terminal: Terminal, story: str, tmp_path: Path
) -> None:
    large = tmp_path / "large.json"
    large.write_text(json.dumps({"a": "x" * LIMIT}))  # larger than an argument can be
    texts, other = {**NO_OBJECTS, f"@{large}": f"{LIMIT:,}"}, f"{story}-2"
    for words in (
        ("create", "story", other, "--context"),
        ("fire", story, "design_complete", "--by", "ann", "--data"),
    ):
        answers = terminal.each([(*words, text) for text in texts])
        for answer, naming in zip(answers, texts.values(), strict=True):
            refused([answer], naming)
    assert terminal.run("show", other).code == 2
    assert terminal.ok("show", story)["requests"] == []


def test_context_of_just_the_limit_is_accepted(terminal: Terminal, project: str, name: str, tmp_path: Path) -> None:
    context = {"a": "x" * (LIMIT - len(json.dumps({"a": ""})))}
    (tmp_path / "context.json").write_text(json.dumps(context))
    made = terminal.ok("create", "story", name, "--context", f"@{tmp_path}/context.json")
    assert made["context"] == context


def test_words_that_merely_look_like_an_escaped_nul_are_accepted(terminal: Terminal, project: str, name: str) -> None:
    context = {"regex": "\\u0000"}  # six characters, of which none is NUL
    create = ("create", "story", name, "--context", json.dumps(context))
    assert terminal.ok(*create)["context"] == context


def test_a_time_that_is_none_is_refused(terminal: Terminal, story: str) -> None:
    times = ("soon", "-5m", "1w", "2026-01-01T00:00:00", "99999999999d", "999999999d", "9999-12-31T23:59:59-01:00")
    refused(terminal.each([("fire", story, "block", "--by", "ann", f"--after={when}") for when in times]))
    assert terminal.ok("show", story)["requests"] == []


def test_names_that_cannot_be_are_refused(terminal: Terminal, story: str) -> None:
    create, fire = ("create", "story"), ("fire", story, "block")
    refused(
        terminal.each(
            [
                (*create, ""),
                (*create, "x" * 101),
                (*create, b"\xff"),
                (*create, "X", "--by", b"\xff"),
                (*fire, "--by", ""),
                (*fire, "--by", b"\xff"),
                (*fire, "--by", "ann", "--request-id", "r" * 201),
                (*fire, "--by", "ann", "--request-id", b"\xff"),
                ("show", b"\xff"),
            ]
        )
    )


def test_options_that_make_no_sense_are_refused(terminal: Terminal, story: str) -> None:
    answers = terminal.each(
        [
            ("create", "story", "X", "--project", ""),
            ("create", "story", "X", "--project", "x" * 101),
            ("list", "--project", "\u202eevil"),
            ("fire", story),
            ("list", "--limit", "0"),
            ("up", "--without", "flour"),
            ("redrive", "--reason", "r"),
            ("redrive", "--all", "some-request", "--reason", "r"),
            ("no-such-command",),
        ]
    )
    assert [answer.code for answer in answers] == [2] * len(answers)
    assert not [answer.words for answer in answers if "Traceback" in answer.said]


def test_an_error_in_json_is_json_too(terminal: Terminal) -> None:
    answer = terminal.run("show", "nobody", "--json")
    assert answer.code == 2
    assert answer.json["error"] == "UnknownInstance"
    assert "nobody" in answer.json["message"]
    assert answer.json["exit_code"] == 2


GOOD = json.dumps(pull_request(1))
BAD_LINES = {
    "not JSON": "{",
    "not an object": "[1]",
    "a field is missing": json.dumps({"number": 2}),
    "no commits": json.dumps(pull_request(2, commits=[])),
    "no date": json.dumps(pull_request(2, commits=[commit(at="yesterday")])),
    "nobody": json.dumps(pull_request(2, merged_by="")),
    "number beyond a name": json.dumps(pull_request(10**120)),
    "NUL in the title": json.dumps(pull_request(2, title="a\x00b")),
    "NUL in a name": json.dumps(pull_request(2, merged_by="a\x00b")),
    "NUL in a later author": json.dumps(pull_request(2, commits=[commit(), commit(author="a\x00b")])),
    "NUL in a later subject": json.dumps(pull_request(2, commits=[commit(), commit(subject="a\x00b")])),
    "oversized subject": json.dumps(pull_request(2, commits=[commit(subject="x" * (LIMIT + 1))])),
    "oversized title": json.dumps(pull_request(2, title="x" * (LIMIT + 1))),
}


def test_a_malformed_line_is_refused_by_file_and_number_and_nothing_is_created(
    terminal: Terminal, dba: "psycopg.Connection[Any]", tmp_path: Path
) -> None:
    files = [tmp_path / f"{number}.jsonl" for number in range(len(BAD_LINES))]
    for file, line in zip(files, BAD_LINES.values(), strict=True):
        file.write_text(f"{GOOD}\n{line}\n")
    count = "SELECT count(*) FROM workflow_instances"
    before = dba.execute(count).fetchone()
    for file, answer in zip(files, terminal.demo.each([("replay", str(file)) for file in files]), strict=True):
        refused([answer], f"{file}:2:")
    assert dba.execute(count).fetchone() == before


def test_a_file_that_is_none_is_refused(terminal: Terminal, tmp_path: Path) -> None:
    empty, latin, twice = (tmp_path / name for name in ("empty", "latin", "twice"))
    empty.write_text("\n\n")
    latin.write_bytes(b'{"title": "\xe9"}\n')
    twice.write_text(f"{GOOD}\n{GOOD}\n")
    files = (empty, latin, twice, tmp_path, tmp_path / "nowhere")
    for file, answer in zip(files, terminal.demo.each([("replay", str(file)) for file in files]), strict=True):
        refused([answer], str(file))


def test_a_title_may_hold_any_character_of_a_line(terminal: Terminal, tmp_path: Path) -> None:
    # U+2028 and U+0085 end a line for str.splitlines, but not in JSON lines.
    file = tmp_path / "pull_requests.jsonl"
    strange = pull_request(7, repo=f"strange-{tmp_path.name}", title="one\u2028two\x85three")
    file.write_text(json.dumps(strange, ensure_ascii=False) + "\n", encoding="utf-8")
    assert terminal.demo.ok("replay", str(file))["pull_requests"] == 1


def test_a_word_that_is_none_of_those_there_are_is_refused_in_plain_words(terminal: Terminal) -> None:
    said = {
        "powershell": ("completion", "powershell"),
        "kye": ("limit", "set", "kye", "--by", "ann", "--reason", "r"),
    }
    for word, command in said.items():
        for answer in terminal.each([command, (*command, "--json")] if word == "kye" else [command]):
            assert answer.code == 2
            assert f": '{word}' is not one of '" in answer.said
            assert "Value error" not in answer.said


def test_an_unwritable_output_is_refused(terminal: Terminal) -> None:
    refused([terminal.run("definitions", "export", "--output", "/proc/nowhere/all.json")], "/proc/nowhere")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("DATABASE_URL", "garbage"),
        ("DATABASE_URL", "mysql://127.0.0.1/interlock"),
        ("INTERLOCK_TRIGGER_NODES", "many"),
        ("INTERLOCK_EFFECT_PROCESSES", "0"),
        ("INTERLOCK_DEFINITIONS", "no.such.module"),
        ("DATABASE_URL", "postgresql+psycopg2://127.0.0.1/interlock"),
        ("INTERLOCK_FLOWER_PORT", "99999"),
    ],
)
def test_a_setting_that_cannot_be_is_named_in_one_line(
    terminal: Terminal, story: str, variable: str, value: str
) -> None:
    answer = terminal.set(**{variable: value}).run("fire", story, "block", "--by", "ann")
    assert answer.code in (1, 2)
    answer.is_one_clear_line(variable)


def test_a_broker_nobody_speaks_to_is_named_and_accepts_nothing(terminal: Terminal, story: str) -> None:
    answer = terminal.set(BROKER_URL="foo://127.0.0.1").run("fire", story, "block", "--by", "ann")
    assert answer.code in (1, 2)
    answer.is_one_clear_line("BROKER_URL")
    assert terminal.ok("show", story)["requests"] == []


def test_where_nothing_runs_every_command_says_how_to_start(tmp_path: Path) -> None:
    here = Terminal(tmp_path / "never")
    commands = (
        ("create", "story", "S"), ("fire", "S", "block", "--by", "ann"), ("show", "S"),
        ("history", "S"), ("list",), ("watch", "S"), ("dead",), ("migrate",), ("audit", "verify"),
        ("redrive", "--all", "--reason", "r"),
    )  # fmt: skip
    assert {words[0] for words in OTHERS if words} - {words[0] for words in commands} == {"doctor", "definitions"}
    for answer in here.each(commands):
        assert answer.code == 1, answer.said
        answer.is_one_clear_line("interlock up --detach")
    doctor = here.run("doctor", "--json")
    assert (doctor.code, doctor.json["ok"]) == (1, False)
    assert not here.home.exists()
