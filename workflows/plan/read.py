"""Read a plan's text: returns a plan that can be run, or reports all its errors."""

from collections.abc import Mapping
from typing import Any

from interlock.workflows.plan.defaults import settle
from interlock.workflows.plan.names import outline
from interlock.workflows.plan.patch_checks import check_patches
from interlock.workflows.plan.phase_checks import check_phases
from interlock.workflows.plan.phases import Phase, PhasePolicy
from interlock.workflows.plan.plan import Plan
from interlock.workflows.plan.positions import Source
from interlock.workflows.plan.problems import PlanInvalid, PlanProblem, UnlocatedProblem
from interlock.workflows.plan.references import check_references
from interlock.workflows.plan.schema_errors import check_shape
from interlock.workflows.plan.yaml_text import parse

Phases = Mapping[str, Phase]
ELSEWHERE = "this installation has a file of phases for all plans (INTERLOCK_PHASES)"


def read_plan(text: str | bytes, *, name: str = "plan.yaml", phases: Phases | None = None) -> Plan:
    """Read a plan written in YAML 1.2 or JSON.

    Args:
        text: the file's content, at most 16 MB; bytes must be UTF-8.
        name: the file's name in messages.
        phases: those of the installation (`read_phases`), if it has any; the plan may then declare none (PHASE-8).

    Returns:
        The plan with its defaults applied, and every reference to a task or gate as a full name, `workstream/id`.

    Raises:
        PlanInvalid: the plan has errors; the message names line, column and field of each.
    """
    source, problems = _parsed(text, name)
    shape = check_shape(Plan, source.value)
    findings = list(check_references(outline(source.value), source.line))
    if not isinstance(shape, Plan):
        findings += shape
    elif phases is not None and shape.phases:
        findings.append(UnlocatedProblem(("phases",), ELSEWHERE, "remove them here", at_key=True))
    elif phases is not None:
        shape = shape.model_copy(update={"phases": dict(phases)})
    problems += map(source.placed, findings)
    if problems or not isinstance(shape, Plan):
        raise PlanInvalid(name, problems)
    settled = settle(shape)
    problems += map(source.placed, check_phases(shape))
    problems += map(source.placed, check_patches(settled))
    if problems:
        raise PlanInvalid(name, problems)
    return settled


def read_phases(text: str | bytes, *, name: str = "phases.yaml") -> dict[str, Phase]:
    """Read a file of phases for all plans: a mapping with the key `phases`, as in a plan (PHASE-8).

    Raises:
        PlanInvalid: the file has errors; the message names line, column and field of each.
    """
    source, problems = _parsed(text, name)
    shape = check_shape(PhasePolicy, source.value)
    if not isinstance(shape, PhasePolicy):
        problems += map(source.placed, shape)
    if problems or not isinstance(shape, PhasePolicy):
        raise PlanInvalid(name, problems)
    return shape.phases


def _parsed(text: str | bytes, name: str) -> tuple[Source, list[PlanProblem]]:
    """A file's values, which are a mapping, with the problems of its syntax. Raises `PlanInvalid` for others."""
    parsed = parse(text)
    if parsed.source is None or not isinstance(parsed.source.value, dict):
        raise PlanInvalid(name, parsed.problems or (_no_plan(parsed.source),))
    return parsed.source, list(parsed.problems)


def plan_json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of plans as written, for completion and checks in editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Plan.model_json_schema(mode="validation")}


def _no_plan(source: Source | None) -> PlanProblem:
    if source is None or source.value is None:
        return PlanProblem(1, 1, "", "is empty", "a plan begins with its `name`")
    return source.placed(UnlocatedProblem((), "a plan is a mapping that begins with its `name`"))
