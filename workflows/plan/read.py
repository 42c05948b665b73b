"""Read a plan's text: returns a plan that can be run, or reports all its errors."""

from typing import Any

from interlock.workflows.plan.defaults import settle
from interlock.workflows.plan.names import outline
from interlock.workflows.plan.plan import Plan
from interlock.workflows.plan.positions import Source
from interlock.workflows.plan.problems import PlanInvalid, PlanProblem, UnlocatedProblem
from interlock.workflows.plan.references import check_references
from interlock.workflows.plan.schema_errors import check_shape
from interlock.workflows.plan.yaml_text import parse


def read_plan(text: str | bytes, *, name: str = "plan.yaml") -> Plan:
    """Read a plan written in YAML 1.2 or JSON.

    Args:
        text: the file's content, at most 16 MB; bytes must be UTF-8.
        name: the file's name in messages.

    Returns:
        The plan with its defaults applied, and every reference to a task or gate as a full name, `workstream/id`.

    Raises:
        PlanInvalid: the plan has errors; the message names line, column and field of each.
    """
    parsed = parse(text)
    if parsed.source is None or not isinstance(parsed.source.value, dict):
        raise PlanInvalid(name, parsed.problems or (_no_plan(parsed.source),))
    shape = check_shape(parsed.source.value)
    findings = list(check_references(outline(parsed.source.value), parsed.source.line))
    findings += () if isinstance(shape, Plan) else shape
    problems = [*parsed.problems, *map(parsed.source.placed, findings)]
    if problems or not isinstance(shape, Plan):
        raise PlanInvalid(name, problems)
    return settle(shape)


def plan_json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of plans as written, for completion and checks in editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Plan.model_json_schema(mode="validation")}


def _no_plan(source: Source | None) -> PlanProblem:
    if source is None or source.value is None:
        return PlanProblem(1, 1, "", "is empty", "a plan begins with its `name`")
    return source.placed(UnlocatedProblem((), "a plan is a mapping that begins with its `name`"))
