"""The order of a plan, its full names, and what its documents and examples say of it."""

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from interlock.workflows.plan.plan import Plan
from interlock.workflows.plan.problems import PlanInvalid
from interlock.workflows.plan.read import plan_json_schema, read_plan

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples" / "plans").iterdir())
GUIDE = (ROOT / "docs" / "plans.md").read_text(encoding="utf-8")


def plan_of(tasks: str, gates: str = "") -> Plan:
    return read_plan(f"name: p\nworkstreams: [{{id: w, tasks: [{tasks}], gates: [{gates}]}}]")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_can_be_run(path: Path) -> None:
    plan = read_plan(path.read_bytes(), name=path.name)
    assert plan.name == path.stem
    assert sorted(plan.order()) == sorted(plan.tasks())


def test_there_are_the_examples_that_the_guide_names() -> None:
    assert {path.name for path in EXAMPLES} == set(re.findall(r"`(\w+\.yaml)`", GUIDE))


def test_the_guides_example_can_be_run_and_fails_as_the_guide_says() -> None:
    example = next(each for each in re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL) if "name: release" in each)
    assert str(read_plan(example).summary()) == (
        "release: 2 workstreams, 3 tasks (1 command, 1 shell, 1 agent), 1 gate, longest chain 3"
    )
    said = GUIDE.split("```\n")[1].splitlines()
    broken = example.replace("shell: make", "retires: 1\n        shell: make").replace("[compile]", "[complie]")
    with pytest.raises(PlanInvalid) as caught:
        read_plan(broken)
    assert str(caught.value).splitlines() == said


def test_the_delivery_example_in_numbers() -> None:
    plan = read_plan((ROOT / "examples" / "plans" / "delivery.yaml").read_text())
    assert str(plan.summary()) == (
        "delivery: 2 workstreams, 5 tasks (1 command, 2 shell, 1 agent, 1 patch), 4 gates, longest chain 5"
    )
    assert plan.final_gates() == {"fix/audit"}


def test_references_are_full_names_once_read() -> None:
    plan = plan_of(
        "{id: a, shell: x}, {id: b, shell: x, depends_on: [a], gates: [g]}",
        "{id: g, type: LINT, shell: x, depends_on: [h]}, {id: h, type: UNIT, shell: x, blocks: [a]}",
    )
    assert (plan.tasks()["w/b"].depends_on, plan.tasks()["w/b"].gates) == (("w/a",), ("w/g",))
    assert (plan.gates()["w/g"].depends_on, plan.gates()["w/h"].blocks) == (("w/h",), ("w/a",))


def test_a_task_may_wait_for_one_of_a_workstream_that_its_own_does_not_wait_for() -> None:
    plan = read_plan(
        "name: p\nworkstreams:\n- {id: a, tasks: [{id: t, shell: x, depends_on: [b/t]}]}\n"
        "- {id: b, tasks: [{id: t, shell: x}]}"
    )
    assert plan.order() == ("b/t", "a/t")


def test_only_gates_that_nothing_needs_before_the_end_are_final() -> None:
    plan = plan_of(
        "{id: a, shell: x, gates: [listed]}",
        ", ".join(
            f"{{id: {name}, type: LINT, shell: x{more}}}"
            for name, more in {
                "listed": ", depends_on: [needed]",
                "needed": ", depends_on: [deeper]",
                "deeper": "",
                "blocking": ", blocks: [a]",
                "last": ", depends_on: [listed]",
                "alone": "",
            }.items()
        ),
    )
    assert plan.final_gates() == {"w/last", "w/alone"}


def test_a_gate_stands_between_the_task_it_judges_and_those_after() -> None:
    plan = plan_of(
        "{id: c, shell: x}, {id: b, shell: x}, {id: a, shell: x, gates: [g]}",
        "{id: g, type: LINT, shell: x, blocks: [b]}, {id: h, type: LINT, shell: x, depends_on: [g], blocks: [c]}",
    )
    assert plan.order().index("w/a") < plan.order().index("w/b")
    assert plan.summary().longest_chain == 2


def test_a_plan_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        plan_of("{id: a, shell: x}").name = "q"  # type: ignore[misc]


def test_the_schema_knows_what_authors_write() -> None:
    schema = plan_json_schema()
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["name", "workstreams"]
    parts = {name: part for name, part in schema["$defs"].items() if name != "JsonValue"}
    assert all(part["additionalProperties"] is False for part in parts.values())
    assert {each["type"] for each in parts["Gate"]["properties"]["timeout"]["anyOf"]} == {"integer", "string"}
    assert {"type": "string"} in parts["Task"]["properties"]["patch"]["anyOf"]
    for part in (schema, *parts.values()):
        assert all("description" in each for each in part["properties"].values())
