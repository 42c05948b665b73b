"""A plan's values are what was written, whatever YAML 1.1 would have made of them."""

import json
from typing import Any

import pytest

from interlock.workflows.plan.problems import PlanInvalid
from interlock.workflows.plan.read import read_plan
from interlock.workflows.plan.tasks import Limits, Task
from interlock.workflows.plan.warnings import warnings


def task(*lines: str, head: str = "") -> Task:
    """The only task of a plan, with these lines in it."""
    body = "".join(f"        {line}\n" for line in lines)
    (only,) = read_plan(f"name: p\n{head}workstreams:\n  - id: w\n    tasks:\n      - id: t\n{body}").tasks().values()
    return only


def refusal(*lines: str) -> str:
    with pytest.raises(PlanInvalid) as caught:
        task(*lines)
    return str(caught.value)


@pytest.mark.parametrize(
    "word",
    [
        "on",
        "no",
        "Yes",
        "true",
        "12:30",
        "1.10",
        "0755",
        "0x1F",
        "1_000",
        "1e3",
        "2026-11-21",
        ".inf",
        "1:1:1",
        "=",
        "1.",
    ],
)
def test_an_unquoted_word_is_the_text_it_is(word: str) -> None:
    read = task(f"command: [{word}]", "env:", f"  ANSWER: {word}", f"title: {word}")
    assert (read.command, read.env, read.title) == ((word,), {"ANSWER": word}, word)


def test_yaml_1_1_booleans_are_names_like_any_other() -> None:
    plan = read_plan("name: on\nworkstreams: [{id: no, tasks: [{id: y, command: [x], env: {on: off}}]}]")
    assert list(plan.tasks()) == ["no/y"]
    assert plan.tasks()["no/y"].env == {"on": "off"}


@pytest.mark.parametrize(("word", "value"), [("true", True), ("False", False), ("TRUE", True)])
def test_a_switch_takes_true_and_false(word: str, value: bool) -> None:
    assert task("command: [x]", f"critical: {word}").critical is value


@pytest.mark.parametrize("word", ["yes", "no", "on", "1", "'tr ue'", "[]", "~"])
def test_a_switch_takes_nothing_else(word: str) -> None:
    assert "7:19: workstreams[0].tasks[0].critical: should be true or false" in refusal(
        "command: [x]", f"critical: {word}"
    )


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("90", 90), ("45s", 45), ("30m", 1800), ("1h30m", 5400), ("2d", 172_800), ("1d1h1m1s", 90_061), ("'10'", 10)],
)
def test_a_duration_is_seconds(written: str, seconds: int) -> None:
    assert task("command: [x]", f"timeout: {written}").timeout == seconds


@pytest.mark.parametrize(
    "written",
    ["0", "-1", "0m", "31d", "1.5", "30 m", "m", "1m1h", "12:30", "true", "1_0", "٣", "9" * 5000, "nan", "[]"],
)
def test_what_is_no_duration_is_refused(written: str) -> None:
    assert "workstreams[0].tasks[0].timeout: should be" in refusal("command: [x]", f"timeout: {written}")


@pytest.mark.parametrize(
    ("written", "size"), [("1048576", 2**20), ("512M", 2**29), ("2G", 2**31), ("1 GiB", 2**30), ("4096KB", 2**22)]
)
def test_a_size_is_bytes_in_powers_of_1024(written: str, size: int) -> None:
    assert task("command: [x]", f"limits: {{memory: {written}}}").limits == Limits(memory=size)


@pytest.mark.parametrize("written", ["1K", "512m", "0", "1.5G", "M", "2000T", "yes"])
def test_what_is_no_size_is_refused(written: str) -> None:
    assert "limits.memory: should be" in refusal("command: [x]", f"limits: {{memory: {written}}}")


@pytest.mark.parametrize("written", ["x", "1.5", "-1", "101", "true", "1e400"])
def test_what_is_no_count_is_refused(written: str) -> None:
    assert "workstreams[0].tasks[0].retries: should be" in refusal("command: [x]", f"retries: {written}")


def test_an_agents_inputs_are_what_json_would_make_of_them() -> None:
    read = task(
        "agent:",
        "  instructions: 5",
        "  inputs: {a: 1, b: 1.5, c: true, d: ~, e: no, f: '1', g: [0o17, 0x1F, .inf, 1e400, 12:30], h: {i: -2}}",
    )
    assert read.agent is not None
    assert read.agent.instructions == "5"
    expected: dict[str, Any] = {"a": 1, "b": 1.5, "c": True, "d": None, "e": "no", "f": "1", "h": {"i": -2}}
    assert read.agent.inputs == expected | {"g": [15, 31, ".inf", "1e400", "12:30"]}
    assert json.loads(read.model_dump_json())["agent"]["inputs"] == read.agent.inputs


def test_a_patch_of_one_line_is_a_file_and_of_several_a_diff() -> None:
    head = "repository: {path: .}\n"
    named = task("patch: fixes/a.diff", head=head).patch
    inline = task("patch: |", "  --- a", "  +++ b", head=head).patch
    assert named is not None
    assert named.file == "fixes/a.diff"
    assert inline is not None
    assert inline.diff == "--- a\n+++ b\n"


def test_json_is_read_with_all_its_escapes() -> None:
    text = {
        "name": "p",
        "workstreams": [{"id": "w", "tasks": [{"id": "t", "shell": 'é🦊\u2028\\ud83d "\t\\/'}]}],
    }
    for written in (json.dumps(text), json.dumps(text, indent="\t"), json.dumps(text).replace("/", "\\/")):
        assert read_plan(written).workstreams[0].tasks[0].shell == 'é🦊\u2028\\ud83d "\t\\/'


def test_json_with_half_an_emoji_after_a_backslash_is_refused_not_guessed_at() -> None:
    with pytest.raises(PlanInvalid, match="invalid Unicode character escape"):
        read_plan(r'{"name": "p", "title": "\\ud83e\udd8a"}')


def test_json_with_a_byte_order_mark_is_still_json() -> None:
    text = json.dumps({"name": "p", "title": "🦊", "workstreams": [{"id": "w", "tasks": [{"id": "t", "shell": "x"}]}]})
    assert read_plan(b"\xef\xbb\xbf" + text.encode()).title == "🦊"


def test_bytes_with_a_byte_order_mark_are_read() -> None:
    assert read_plan(b"\xef\xbb\xbfname: p\nworkstreams: [{id: w, tasks: [{id: t, shell: x}]}]\r\n").name == "p"


# Defaults ---------------------------------------------------------------------------------------------------------


def test_what_nothing_says_is_as_the_ssot_has_it_and_terms_are_left_to_the_settings() -> None:
    read = task("command: [x]")
    assert (read.critical, read.retries, read.timeout, read.expected_exit_codes) == (False, None, None, (0,))
    assert (read.priority, read.capabilities, read.depends_on, read.gates, read.tool) == (0, (), (), (), None)
    assert task("command: [x]", "retries: ~", head="defaults: {retries: 1}\n").retries is None


def test_defaults_hold_where_a_task_says_nothing() -> None:
    head = "defaults: {retries: 1, timeout: 1m, critical: true, env: {A: a, B: b}, cwd: src}\n"
    read = task("command: [x]", "retries: 3", "critical: false", "env: {B: mine}", head=head)
    assert (read.retries, read.timeout, read.critical, read.cwd) == (3, 60, False, "src")
    assert read.env == {"A": "a", "B": "mine"}


def test_a_gate_takes_only_environment_directory_and_limits_from_defaults() -> None:
    plan = read_plan(
        "name: p\ndefaults: {env: {A: a}, cwd: src, limits: {memory: 1G}, timeout: 1m, expected_exit_codes: [7]}\n"
        "workstreams: [{id: w, tasks: [{id: t, shell: x}], gates: [{id: g, type: LINT, shell: x}]}]"
    )
    gate = plan.gates()["w/g"]
    assert (gate.env, gate.cwd, gate.limits.memory) == ({"A": "a"}, "src", 2**30)
    assert (gate.timeout, gate.expected_exit_codes) == (1800, (0,))


def test_a_secret_is_named_by_where_it_is_and_a_tasks_own_word_for_a_variable_wins() -> None:
    head = "defaults: {env: {A: a, B: b}, env_from: {C: 'env:X', D: 'file:deep/key'}}\n"
    read = task("command: [x]", "env: {C: plain}", "env_from: {B: 'command:vault'}", head=head)
    assert read.env == {"A": "a", "C": "plain"}
    assert read.env_from == {"B": "command:vault", "D": "file:deep/key"}
    assert "A: in `env` and in `env_from`" in refusal("command: [x]", "env: {A: a}", "env_from: {A: 'env:X'}")


@pytest.mark.parametrize(
    "reference", ["hunter2", "env:", "env:A-B", "command:/bin/sh", "command:a b", "vault:x", "file:"]
)
def test_what_is_no_reference_to_a_secret_is_refused(reference: str) -> None:
    assert "env_from.A" in refusal("command: [x]", f"env_from: {{A: '{reference}'}}")


@pytest.mark.parametrize(
    ("name", "warned"),
    [("GITHUB_TOKEN", True), ("DB_PASSWORD", True), ("clientSecret", True), ("API_KEY", True), ("SSH_KEY_FILE", True),
     ("KEYBOARD", False), ("MONKEY_HOUSE", True), ("LANG", False)],
)  # fmt: skip
def test_a_variable_that_seems_to_be_a_secret_is_warned_of_where_it_is_written(name: str, warned: bool) -> None:
    said = f"name: p\ndefaults: {{env: {{{name}: x}}}}\nworkstreams: [{{id: w, tasks: [{{id: t, shell: x}}]}}]"
    own = f"name: p\nworkstreams: [{{id: w, tasks: [{{id: t, shell: x, env: {{{name}: x}}}}]}}]"
    told = [[line.partition(":")[0] for line in warnings(read_plan(text))] for text in (said, own)]
    assert told == ([["defaults"], ["w/t"]] if warned else [[], []])
