"""Whatever is written, reading it gives a plan or says what is wrong, and where: nothing else ever comes out."""

import json
from copy import deepcopy
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from interlock.workflows.plan.names import result_of
from interlock.workflows.plan.plan import Plan
from interlock.workflows.plan.problems import PlanInvalid, PlanProblem
from interlock.workflows.plan.read import read_plan
from tests.property.plans import Written, can_end, plans, tangles, written

JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
PIECES = r""": |:|- |  |[|]|{|}|,|&a |*a|>|!|!!str |'|"|#|...|?|<<|~|\|@|`|0x1|name|id|tasks|workstreams"""
YAML_PIECES = st.sampled_from(
    [*PIECES.split("|"), "|", "\n", "---\n", "%YAML 1.1\n", "\t", "\0", "\x85", "\u2028", "é", "\U0001f98a"]
)


def problems_of(text: str | bytes) -> tuple[PlanProblem, ...]:
    with pytest.raises(PlanInvalid) as caught:
        read_plan(text)
    return caught.value.problems


def at(written: Written, *path: str | int) -> int:
    return written.lines[path]


def told(written: Written, *path: str | int) -> list[PlanProblem]:
    """The problems told at the line of the value at `path`; there must be one."""
    found = [each for each in problems_of(written.text) if each.line == at(written, *path)]
    assert found, problems_of(written.text)
    return found


# Sound plans ------------------------------------------------------------------------------------------------------


@given(raw=plans())
@hypothesis_settings(max_examples=42)
def test_a_plan_is_the_same_from_json_from_yaml_and_from_its_own_dump(raw: dict[str, Any]) -> None:
    plan = read_plan(json.dumps(raw))
    assert read_plan(yaml.safe_dump(raw, allow_unicode=True)) == plan
    assert read_plan(plan.model_dump_json()) == plan
    assert Plan.model_validate(plan.model_dump(mode="json")) == plan


@given(raw=plans())
@hypothesis_settings(max_examples=42)
def test_each_task_comes_after_all_it_depends_on(raw: dict[str, Any]) -> None:
    plan = read_plan(json.dumps(raw))
    place = {name: number for number, name in enumerate(plan.order())}
    assert set(place) == set(plan.tasks())
    for name, task in plan.tasks().items():
        assert all(place[each] < place[name] for each in task.depends_on)
        assert {result_of(each)[0] for each in task.inputs.values()} <= set(task.depends_on)
    within = {each.id: [place[f"{each.id}/{task.id}"] for task in each.tasks] for each in plan.workstreams}
    for each in plan.workstreams:
        assert all(max(within[before]) < min(within[each.id]) for before in each.depends_on)


@given(raw=tangles())
@hypothesis_settings(max_examples=120)
def test_a_plan_is_refused_for_a_circle_exactly_if_it_could_never_end(raw: dict[str, Any]) -> None:
    if can_end(raw):
        assert read_plan(json.dumps(raw)).order()
    else:
        assert all("waits in a circle" in each.message for each in problems_of(json.dumps(raw)))


# Damaged plans ----------------------------------------------------------------------------------------------------


@given(raw=plans(), data=st.data())
@hypothesis_settings(max_examples=42)
def test_renaming_an_id_is_told_at_every_reference_to_it(raw: dict[str, Any], data: Any) -> None:
    tasks = [(w, t) for w, each in enumerate(raw["workstreams"]) for t in range(len(each["tasks"]))]
    w, t = data.draw(st.sampled_from(tasks))
    old = raw["workstreams"][w]["tasks"][t]["id"]
    raw["workstreams"][w]["tasks"][t]["id"] = "renamed"
    source = written(raw)
    mentions = [
        line
        for path, line in source.lines.items()
        if source.values[path].partition(":")[0] in (old, f"{raw['workstreams'][w]['id']}/{old}")
    ]
    if mentions:
        found = problems_of(source.text)
        assert sorted(each.line for each in found) == sorted(mentions)
        assert all(each.message.startswith("no task") for each in found)
    else:
        read_plan(source.text)


@given(raw=plans(), data=st.data())
@hypothesis_settings(max_examples=42)
def test_a_dropped_key_is_told_where_it_belongs(raw: dict[str, Any], data: Any) -> None:
    required: list[tuple[tuple[str | int, ...], str]] = [((), key) for key in ("name", "workstreams")]
    for w, each in enumerate(raw["workstreams"]):
        required += [(("workstreams", w), key) for key in ("id", "tasks")]
        required += [
            (("workstreams", w, "tasks", t), key) for t in range(len(each["tasks"])) for key in ("id", "command")
        ]
    path, key = data.draw(st.sampled_from(required))
    holder: Any = raw
    for step in path:
        holder = holder[step]
    del holder[key]
    says = "needs exactly one of" if key == "command" else "is required"
    assert any(each.message.startswith(says) for each in told(written(raw), *path))


@given(raw=plans(), data=st.data())
@hypothesis_settings(max_examples=42)
def test_an_id_given_twice_is_told_at_the_second_with_the_line_of_the_first(raw: dict[str, Any], data: Any) -> None:
    w = data.draw(st.integers(0, len(raw["workstreams"]) - 1))
    tasks = raw["workstreams"][w]["tasks"]
    t = data.draw(st.integers(0, len(tasks) - 1))
    tasks.append(deepcopy(tasks[t]))
    source = written(raw)
    (problem,) = told(source, "workstreams", w, "tasks", len(tasks) - 1, "id")
    assert problem.message.endswith(f"in line {at(source, 'workstreams', w, 'tasks', t, 'id')}")


@given(raw=plans(), data=st.data())
@hypothesis_settings(max_examples=42)
def test_an_edge_that_closes_a_circle_is_named_with_its_line(raw: dict[str, Any], data: Any) -> None:
    w = data.draw(st.integers(0, len(raw["workstreams"]) - 1))
    tasks = raw["workstreams"][w]["tasks"]
    tasks.append({"id": "last", "command": ["x"], "depends_on": [tasks[-1]["id"]]})
    first = data.draw(st.integers(0, len(tasks) - 2))
    for t in range(first + 1, len(tasks)):  # a chain from `first` to the last, so that the new edge closes a circle
        before = tasks[t - 1]["id"]
        tasks[t]["depends_on"] = [*(each for each in tasks[t]["depends_on"] if each != before), before]
    tasks[first]["depends_on"].append("last")
    source = written(raw)
    edge = ("workstreams", w, "tasks", first, "depends_on", len(tasks[first]["depends_on"]) - 1)
    (problem,) = problems_of(source.text)
    assert f"(line {at(source, *edge)})" in problem.message


@given(raw=plans(), data=st.data())
@hypothesis_settings(max_examples=42)
def test_junk_in_place_of_any_value_is_refused_or_read(raw: dict[str, Any], data: Any) -> None:
    source = written(raw)
    path = data.draw(st.sampled_from(sorted((each for each in source.lines if each), key=str)))
    holder: Any = raw
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = data.draw(JUNK)
    outcome(json.dumps(raw))


# No plan at all ---------------------------------------------------------------------------------------------------


def outcome(text: str | bytes) -> None:
    """Read; anything raised but `PlanInvalid` fails the test, and so does one that does not say where."""
    raw = text if isinstance(text, bytes) else text.encode("utf-8", "replace")
    last = len(raw.decode("utf-8", "replace").splitlines()) + 1
    for each in problems(text):
        assert 1 <= each.line <= last
        assert each.column >= 1
        assert each.message


def problems(text: str | bytes) -> tuple[PlanProblem, ...]:
    """What is wrong with a text, at least one thing unless it is a plan."""
    try:
        read_plan(text)
    except PlanInvalid as error:
        return error.problems or (PlanProblem(0, 0, "", ""),)
    return ()


@given(raw=st.binary(max_size=200))
@hypothesis_settings(max_examples=120)
def test_bytes_of_any_kind_are_refused_or_read(raw: bytes) -> None:
    outcome(raw)


@given(text=st.text(st.characters(), max_size=200) | st.lists(YAML_PIECES, max_size=40).map("".join))
@hypothesis_settings(max_examples=840)
def test_text_of_any_kind_is_refused_or_read(text: str) -> None:
    outcome(text)


@given(raw=plans(), data=st.data())
@hypothesis_settings(max_examples=42)
def test_a_plan_with_pieces_of_yaml_thrown_in_is_refused_or_read(raw: dict[str, Any], data: Any) -> None:
    text = yaml.safe_dump(raw)
    at = data.draw(st.integers(0, len(text)))
    outcome(text[:at] + data.draw(YAML_PIECES) + text[at + data.draw(st.integers(0, 3)) :])
