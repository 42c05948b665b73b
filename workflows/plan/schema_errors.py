"""Translates pydantic's errors about a plan's shape into this project's messages."""

from types import MappingProxyType
from typing import TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from interlock.workflows.plan.field_types import GLOB, IDENTIFIER, RESULT, VARIABLE
from interlock.workflows.plan.phases import Phase
from interlock.workflows.plan.plan import Plan, PlannedRepository, Tool, Workstream
from interlock.workflows.plan.problems import FieldPath, UnlocatedProblem, quoted
from interlock.workflows.plan.tasks import AgentWork, Backoff, Gate, Limits, Patch, PlanPart, Task, Terms
from interlock.workflows.spelling import meant

SAYS = MappingProxyType(
    {
        "missing": "is required",
        "extra_forbidden": "unknown field",
        "tuple_type": "should be a list",
        "dict_type": "should be a mapping",
        "model_type": "should be a mapping",
        "model_attributes_type": "should be a mapping",
        "string_type": "should be text",
        "int_parsing_size": "should be a smaller number",
    }
)
PATTERNS = MappingProxyType(
    {
        IDENTIFIER: "should be 1 to 60 letters, digits, '.', '_' or '-', and begin with a letter or digit",
        VARIABLE: "should be a variable's name: letters, digits and '_', not beginning with a digit",
        RESULT: "should be a task, or `task:key` for one key of its result",
        GLOB: "should be a glob, not beginning with '!', '#' or a blank",
    }
)
PARTS: MappingProxyType[str, type[PlanPart]] = MappingProxyType(
    {
        "defaults": Terms,
        "phases": Phase,
        "tools": Tool,
        "repository": PlannedRepository,
        "workstreams": Workstream,
        "tasks": Task,
        "gates": Gate,
        "agent": AgentWork,
        "patch": Patch,
        "limits": Limits,
        "backoff": Backoff,
    }
)
Part = TypeVar("Part", bound=PlanPart)
KNOWN_MISTAKES = MappingProxyType(
    {
        "<<": "merge keys are YAML 1.1; use `defaults`",
        "enabled": "to leave a workstream out, write `skip: true`",
        "max_retries": 'did you mean "retries"?',
        "timeout_sec": 'did you mean "timeout"?',
        "is_critical": 'did you mean "critical"?',
    }
)


def check_shape(part: type[Part], value: object) -> Part | tuple[UnlocatedProblem, ...]:
    """A plan, or another part, built from plain values, with names unchecked; or all errors in their shape."""
    try:
        return part.model_validate(value)
    except ValidationError as error:
        return tuple(_finding(each) for each in error.errors(include_url=False) if not _is_echo(each))


def _is_echo(error: ErrorDetails) -> bool:
    # For a list with wrong items pydantic also reports "too short", since it does not count those items.
    return error["type"] == "too_short" and len(error["input"]) >= error["ctx"]["min_length"]


def _finding(error: ErrorDetails) -> UnlocatedProblem:
    path, kind = error["loc"], error["type"]
    if at_key := path[-1:] == ("[key]",):
        path = path[:-1]
    if kind == "extra_forbidden":
        return UnlocatedProblem(path, SAYS[kind], _nearest(path), at_key=True)
    return UnlocatedProblem(path, _message(error), _hint(error), at_key=at_key)


def _message(error: ErrorDetails) -> str:
    kind, value = error["type"], error["input"]
    if kind == "too_short":
        return "should not be empty"
    if kind == "wording":  # the message already quotes the value
        return error["msg"]
    pattern = str(error.get("ctx", {}).get("pattern"))
    message = PATTERNS.get(pattern) or SAYS.get(kind) or error["msg"].replace("Input should", "should", 1)
    return f"{message}, not {quoted(value)}" if isinstance(value, str | int | float) else message


def _hint(error: ErrorDetails) -> str:
    kind, value = error["type"], error["input"]
    if kind == "string_type" and value is None:
        return "write '' for an empty text, and put null in quotes to mean the word"
    if kind == "tuple_type" and isinstance(value, str):
        return "a list of one is written in brackets"
    if kind == "literal_error" and isinstance(value, str) and value.upper() in error["ctx"]["expected"]:
        return "write it in capitals"
    return ""


def _nearest(path: FieldPath) -> str:
    """A hint with the field that was probably meant."""
    unknown, *around = reversed(path)
    part = next((PARTS[each] for each in around if isinstance(each, str) and each in PARTS), Plan)
    if near := meant(unknown, part.model_fields):
        return f"did you mean {quoted(near)}?"
    return KNOWN_MISTAKES.get(str(unknown), "")
