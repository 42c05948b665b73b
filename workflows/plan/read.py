"""From a plan's text to a plan that can be run, or to everything that is wrong with it."""

from typing import Any

from workflows.plan.outline import outline
from workflows.plan.parse import parse
from workflows.plan.places import Source
from workflows.plan.plan import Plan
from workflows.plan.problems import Finding, PlanInvalid, Problem
from workflows.plan.references import check_references
from workflows.plan.settle import settle
from workflows.plan.shape import check_shape


def read_plan(text: str | bytes, *, name: str = "plan.yaml") -> Plan:
    """Read a plan written in YAML 1.2 or JSON.

    Args:
        text: the file's content, at most 16 MB; bytes are taken for UTF-8.
        name: what the file is called in messages.

    Returns:
        The plan with defaults applied and every task and gate referred to by its full name, `workstream/id`.

    Raises:
        PlanInvalid: naming line, column and field of everything that is wrong.
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
    """The JSON Schema (2020-12) of what a plan's author may write, for editors that complete and check."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Plan.model_json_schema(mode="validation")}


def _no_plan(source: Source | None) -> Problem:
    if source is None or source.value is None:
        return Problem(1, 1, "", "is empty", "a plan begins with its `name`")
    return source.placed(Finding((), "a plan is a mapping that begins with its `name`"))
