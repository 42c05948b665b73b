"""A plan that cannot be run is refused with every mistake in it, each at its line, column and field."""

import pickle

import pytest

from interlock.workflows.errors import Refused
from interlock.workflows.plan.problems import PlanInvalid, PlanProblem
from interlock.workflows.plan.read import read_plan

SOUND = """\
name: p
tools: {index: {}}
workstreams:
  - id: build
    gates:
      - id: unit
        type: UNIT
        command: [pytest]
    tasks:
      - id: compile
        command: [make]
      - id: test
        command: [make, test]
        depends_on: [compile]
        gates: [unit]
  - id: ship
    depends_on: [build]
    tasks:
      - id: push
        command: [push]
"""


def refused(text: str | bytes) -> tuple[PlanProblem, ...]:
    with pytest.raises(PlanInvalid) as caught:
        read_plan(text)
    return caught.value.problems


def told(text: str | bytes) -> list[str]:
    return [str(each) for each in refused(text)]


def test_the_sound_plan_is_sound() -> None:
    assert len(read_plan(SOUND).tasks()) == 3


# (what is replaced, by what, what is said)
MISTAKES: dict[str, tuple[str, str, str]] = {
    "an unknown field": (
        "gates: [unit]",
        "gates: [unit]\n        retires: 1",
        '16:9: workstreams[0].tasks[1].retires: unknown field; did you mean "retries"?',
    ),
    "a merge key": (
        "name: p",
        "name: p\n<<: {}",
        '2:1: ["<<"]: unknown field; merge keys are YAML 1.1; use `defaults`',
    ),
    "a missing field": ("- id: push\n        command", "- command", "19:9: workstreams[1].tasks[0].id: is required"),
    "no work": (
        "        command: [make]\n",
        "",
        "10:9: workstreams[0].tasks[0]: needs exactly one of command, shell, agent, patch; it has none of them",
    ),
    "two kinds of work": (
        "command: [make]\n",
        "command: [make]\n        shell: make\n",
        "10:9: workstreams[0].tasks[0]: needs exactly one of command, shell, agent, patch; it has command and shell",
    ),
    "a text for a list": (
        "[build]",
        "build",
        '17:17: workstreams[1].depends_on: should be a list, not "build"; a list of one is written in brackets',
    ),
    "a bad id": (
        "id: ship",
        "id: -ship",
        "16:9: workstreams[1].id: should be 1 to 60 letters, digits, '.', '_' or '-', "
        'and begin with a letter or digit, not "-ship"',
    ),
    "an id too long": ("id: ship", f"id: {'s' * 61}", "16:9: workstreams[1].id: should be 1 to 60 letters"),
    "a gate of no known type": (
        "type: UNIT",
        "type: unit",
        "7:15: workstreams[0].gates[0].type: should be 'LINT', 'UNIT', 'INTEGRATION' or 'SECURITY', not \"unit\"; "
        "write it in capitals",
    ),
    "an empty command": ("[push]", "[]", "20:18: workstreams[1].tasks[0].command: should not be empty"),
    "no text": ("[push]", "[push, ~]", "20:25: workstreams[1].tasks[0].command[1]: should be text; write '' for"),
    "a task misspelt": (
        "depends_on: [compile]",
        "depends_on: [complie]",
        '14:22: workstreams[0].tasks[1].depends_on[0]: no task "complie"; did you mean "compile"?',
    ),
    "a task of another workstream misspelt": (
        "[push]",
        "[push]\n        depends_on: [build/tset]",
        '21:22: workstreams[1].tasks[0].depends_on[0]: no task "build/tset"; did you mean "build/test"?',
    ),
    "a task of another workstream by its id alone": (
        "[push]",
        "[push]\n        depends_on: [test]",
        '21:22: workstreams[1].tasks[0].depends_on[0]: no task "test"; '
        'the one of another workstream is written "build/test"',
    ),
    "an input from a task that is not there": (
        "command: [push]",
        "command: [push]\n        inputs: {V: 'build/tset:version'}",
        '21:21: workstreams[1].tasks[0].inputs.V: no task "build/tset"; did you mean "build/test"?',
    ),
    "an input from itself": (
        "command: [push]",
        "command: [push]\n        inputs: {V: push}",
        '21:21: workstreams[1].tasks[0].inputs.V: the task "push" depends on itself',
    ),
    "an input that closes a circle": (
        "command: [make]\n",
        "command: [make]\n        inputs: {V: test}\n",
        "12:21: workstreams[0].tasks[0].inputs.V: waits in a circle: build/compile (line 12) -> build/test (line 15)",
    ),
    "an input from a workstream that comes later": (
        "command: [make]\n",
        "command: [make]\n        inputs: {V: 'ship/push:id'}\n",
        "12:21: workstreams[0].tasks[0].inputs.V: waits in a circle: build/compile (line 12) -> ship/push",
    ),
    "an input that names no task": (
        "command: [push]",
        "command: [push]\n        inputs: {V: ':version'}",
        "21:21: workstreams[1].tasks[0].inputs.V: should be a task, or `task:key` for one key of its result",
    ),
    "an input under a variable that is set": (
        "command: [push]",
        "command: [push]\n        inputs: {V: build/test}\n        env: {V: x}",
        "19:9: workstreams[1].tasks[0]: V: in `inputs` and among its variables",
    ),
    "an input under a name of ours": (
        "command: [push]",
        "command: [push]\n        inputs: {INTERLOCK_OUTPUT: build/test}",
        "19:9: workstreams[1].tasks[0]: INTERLOCK_OUTPUT: such names are Interlock's own",
    ),
    "a gate misspelt": (
        "gates: [unit]",
        "gates: [unti]",
        '15:17: workstreams[0].tasks[1].gates[0]: no gate "unti"; did you mean "unit"?',
    ),
    "a blocked task misspelt": (
        "[pytest]",
        "[pytest]\n        blocks: [x]",
        '9:18: workstreams[0].gates[0].blocks[0]: no task "x"',
    ),
    "a workstream misspelt": (
        "[build]",
        "[biuld]",
        '17:18: workstreams[1].depends_on[0]: no workstream "biuld"; did you mean "build"?',
    ),
    "a tool misspelt": (
        "[push]",
        "[push]\n        tool: idnex",
        '21:15: workstreams[1].tasks[0].tool: no tool "idnex"; did you mean "index"?',
    ),
    "a phase misspelt": (
        "name: p",
        "name: p\nphases: {design: {}, release: {}}\nphase_id: relaese",
        '3:11: phase_id: no phase "relaese"; did you mean "release"? known phases: "default", "design", "release"',
    ),
    "a workstream's phase that no plan declares": (
        "- id: ship",
        "- id: ship\n    phase_id: x",
        '17:15: workstreams[1].phase_id: no phase "x"; known phases: "default"',
    ),
    "a phase without a gate that it requires": (
        "workstreams:\n  - id: build\n",
        "phases: {x: {required_gates: [UNIT]}}\nworkstreams:\n  - id: build\n    phase_id: x\n",
        '8:7: workstreams[0].gates: phase "x" requires a gate of type UNIT that judges the whole workstream; '
        "add one that no task or gate names",
    ),
    "a phase that requires no type of gate": (
        "name: p",
        "name: p\nphases: {x: {required_gates: [unit]}}",
        "2:31: phases.x.required_gates[0]: should be 'LINT', 'UNIT', 'INTEGRATION' or 'SECURITY'",
    ),
    "an unknown field of a phase": (
        "name: p",
        "name: p\nphases: {x: {alowed_paths: []}}",
        '2:14: phases.x.alowed_paths: unknown field; did you mean "allowed_paths"?',
    ),
    "a default's tool misspelt": ("name: p", "name: p\ndefaults: {tool: x}", '2:18: defaults.tool: no tool "x"'),
    "a task's id twice": (
        "[push]",
        "[push]\n      - id: push\n        shell: push",
        '21:13: workstreams[1].tasks[1].id: "push" is already the id of a task of workstream "ship", in line 19',
    ),
    "a workstream's id twice": (
        "[push]",
        "[push]\n  - id: build\n    tasks: [{id: x, shell: x}]",
        '21:9: workstreams[2].id: "build" is already the id of a workstream of the plan, in line 4',
    ),
    "a gate's id twice": (
        "type: UNIT",
        "type: UNIT\n        shell: x\n      - id: unit\n        type: LINT",
        '9:13: workstreams[0].gates[1].id: "unit" is already the id of a gate of workstream "build", in line 6',
    ),
    "a task that depends on itself": (
        "[compile]",
        "[test]",
        '14:22: workstreams[0].tasks[1].depends_on[0]: the task "test" depends on itself',
    ),
    "a workstream that depends on itself": (
        "[build]",
        "[ship]",
        '17:18: workstreams[1].depends_on[0]: the workstream "ship" depends on itself',
    ),
    "a dependency twice": (
        "[compile]",
        "[compile, build/compile]",
        '14:31: workstreams[0].tasks[1].depends_on[1]: "build/compile" is listed twice; first in line 14',
    ),
    "a patch without a repository": (
        "command: [push]",
        "patch: a.diff",
        "20:16: workstreams[1].tasks[0].patch: a patch needs a repository to land in",
    ),
    "a glob that takes back": (
        "name: p",
        "name: p\nrepository: {path: ., allowed_paths: ['!src']}",
        "2:39: repository.allowed_paths[0]: should be a glob, not beginning with '!', '#' or a blank, not \"!src\"",
    ),
    "a circle of tasks": (
        "[make]",
        "[make]\n        depends_on: [test]",
        "12:22: workstreams[0].tasks[0].depends_on[0]: waits in a circle: "
        "build/compile (line 12) -> build/test (line 15) -> build/compile",
    ),
    "a circle through a workstream": (
        "[make]",
        "[make]\n        depends_on: [ship/push]",
        "12:22: workstreams[0].tasks[0].depends_on[0]: waits in a circle: "
        "build/compile (line 12) -> ship/push (line 20) -> workstream ship (line 18)"
        " -> workstream build (line 13) -> build/test (line 15) -> build/compile",
    ),
    "a circle through a gate": (
        "[pytest]",
        "[pytest]\n        blocks: [compile]",
        "9:18: workstreams[0].gates[0].blocks[0]: waits in a circle: "
        "build/compile (line 9) -> gate build/unit (line 16) -> build/test (line 15) -> build/compile",
    ),
    "a key twice": (
        "[push]",
        "[push]\n        command: [pull]",
        '21:9: workstreams[1].tasks[0]: "command" is given twice; first in line 20',
    ),
    "a control character": (
        "[push]",
        "[\x07]",
        "20:19: holds the character U+0007: control characters are not allowed",
    ),
    "a key that is no text": ("name: p", "name: p\n? [a]\n: b", "2:3: a key must be text"),
    "a tag": ("[push]", '[!!python/name:os.system "x"]', '20:19: workstreams[1].tasks[0].command[0]: has a tag, "tag:'),
    "a NUL": ("[push]", r'["\0"]', "20:19: workstreams[1].tasks[0].command[0]: holds a NUL character"),
    "a second document": ("[push]\n", "[push]\n---\na: b\n", "21:1: a second document begins"),
    "an alias of nothing": ("[push]", "*push", "20:18: workstreams[1].tasks[0].command: *push has no anchor"),
    "an alias of itself": ("[push]", "&all [*all]", "20:24: workstreams[1].tasks[0].command[0]: *all has no anchor"),
    "no YAML": ("[push]", "[push", "21:1: while parsing a flow sequence: did not find expected ',' or ']'"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_told_at_its_place(case: str) -> None:
    old, new, says = MISTAKES[case]
    assert SOUND.count(old) == 1, "the mistake must be made in one place"
    (problem,) = told(SOUND.replace(old, new))
    assert problem.startswith(says)


def test_all_mistakes_are_told_at_once_in_the_order_of_the_file() -> None:
    broken = SOUND.replace("name: p", "name: p\nname: q").replace("[compile]", "[complie]").replace("[push]", "[]")
    broken = broken.replace("id: unit", "id: unit\n        tpye: UNIT").replace("[build]", "[ship]")
    assert [each.line for each in refused(broken)] == [2, 8, 16, 19, 22]


def test_a_patch_is_a_file_or_a_diff_not_both() -> None:
    text = SOUND.replace("name: p", "name: p\nrepository: {path: .}").replace(
        "command: [push]", "patch: {file: a, diff: b}"
    )
    assert told(text) == ["21:16: workstreams[1].tasks[0].patch: needs exactly one of file, diff; it has file and diff"]


def test_a_name_is_not_mended_by_one_of_another_workstream_that_only_looks_like_it() -> None:
    text = SOUND.replace("[push]", "[push]\n        depends_on: [compilf]").replace("id: ship", "id: bui")
    assert told(text) == ['21:22: workstreams[1].tasks[0].depends_on[0]: no task "compilf"']


def test_a_final_gate_waits_for_its_workstreams_tasks_in_circles_too() -> None:
    text = """\
name: p
workstreams:
  - {id: a, tasks: [{id: t, shell: x, depends_on: [c/t]}], gates: [{id: g, type: LINT, shell: x}]}
  - {id: b, tasks: [{id: t, shell: x}], gates: [{id: g, type: LINT, shell: x, depends_on: [a/g]}]}
  - {id: c, tasks: [{id: t, shell: x}], depends_on: [b]}
"""
    (problem,) = told(text)
    assert problem.endswith(
        "waits in a circle: a/t (line 3) -> c/t (line 5) -> workstream c (line 5) -> workstream b (line 4)"
        " -> gate b/g (line 4) -> gate a/g (line 3) -> workstream a (line 3) -> a/t"
    )


def test_two_circles_are_both_told() -> None:
    text = SOUND.replace("[make]", "[make]\n        depends_on: [test]").replace(
        "[push]",
        "[push]\n        depends_on: [pull]\n      - id: pull\n        command: [x]\n        depends_on: [push]",
    )
    assert [each.line for each in refused(text)] == [12, 22]


def test_a_problem_names_the_file_and_refuses_with_exit_code_2() -> None:
    with pytest.raises(PlanInvalid, match=r"^deploy/plan\.yml:1:1: a plan is a mapping") as caught:
        read_plan("- a", name="deploy/plan.yml")
    assert isinstance(caught.value, Refused)
    assert caught.value.refused
    assert pickle.loads(pickle.dumps(caught.value)).problems == caught.value.problems  # noqa: S301  # our own bytes


@pytest.mark.parametrize("text", ["", "  \n", "# nothing\n", "~", "---\n", b"\xef\xbb\xbf"])
def test_an_empty_file_is_told_as_such(text: str | bytes) -> None:
    assert told(text) == ["1:1: is empty; a plan begins with its `name`"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"name: \xff", "1:7: is not UTF-8 text"),
        ("name: p\nt: é\ud83d", "2:5: is not UTF-8 text"),
        ("name: p".encode("utf-16"), "1:1: is not UTF-8 text"),
    ],
)
def test_what_is_not_utf_8_is_told_with_its_place(text: str | bytes, says: str) -> None:
    assert told(text)[0].startswith(says)


def test_nothing_a_terminal_would_obey_is_repeated() -> None:
    problems = told(
        SOUND.replace("[compile]", r'["\e[2J\u202e"]').replace("id: ship", r"id: ship" + '\n    "\\e]0;": 1')
    )
    assert len(problems) == 2
    assert all(each.isprintable() for each in problems)


# Too much ---------------------------------------------------------------------------------------------------------


def test_a_billion_laughs_are_refused_before_they_are_laughed() -> None:
    levels = [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 10)]
    (*_, problem) = told("\n".join(["l0: &l0 [ha, ha]", *levels, SOUND]))
    assert "aliases repeat more than 100,000 values" in problem


def test_an_alias_that_repeats_little_is_read() -> None:
    text = SOUND.replace("command: [make]", "command: &c [make]").replace("command: [make, test]", "command: *c")
    assert read_plan(text).tasks()["build/test"].command == ("make",)


@pytest.mark.parametrize(
    "deep", ["[" * 100_000, "{a: " * 100_000, "- " * 10_000, "\n".join(" " * n + "a:" for n in range(200))]
)
def test_what_is_nested_too_deep_is_refused(deep: str) -> None:
    assert any("nested deeper than 50 levels" in each for each in told(deep))


def test_more_than_16_mb_is_refused_unread() -> None:
    assert told("#" * (16 * 1024**2 + 1)) == ["1:1: is 16,777,217 bytes long; a plan has at most 16,777,216"]


def test_more_tasks_than_the_limit_are_refused_at_the_first_beyond(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.workflows.plan.references.MAX_TASKS", 2)
    assert told(SOUND) == ["19:9: workstreams[1].tasks[0]: more than 2 tasks; make it several plans"]


def test_many_problems_are_counted_but_not_all_printed() -> None:
    text = SOUND.replace("[compile]", "[" + ", ".join(f"t{n}" for n in range(150)) + "]")
    with pytest.raises(PlanInvalid) as caught:
        read_plan(text)
    assert len(caught.value.problems) == 150
    assert str(caught.value).splitlines()[-1] == "and 50 more problems"


def test_a_patch_neither_gives_nor_takes_a_result() -> None:
    text = SOUND.replace("name: p", "name: p\nrepository: {path: .}")
    gives = text + "        inputs: {V: land}\n      - {id: land, patch: x.diff}\n"
    assert told(gives) == ['22:21: workstreams[1].tasks[0].inputs.V: "land" is a patch, which has no result']
    takes = text + "      - {id: land, patch: x.diff, inputs: {V: push}}\n"
    assert told(takes) == ["22:9: workstreams[1].tasks[1]: a patch runs nothing, so it takes no `inputs`"]
