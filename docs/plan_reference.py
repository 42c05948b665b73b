"""The tables of docs/plans.md, from the models: every field with its default and what it is for."""

from typing import Any

from pydantic.fields import FieldInfo

from interlock.workflows.plan.phases import Phase
from interlock.workflows.plan.plan import Plan, PlannedRepository, Tool, Workstream
from interlock.workflows.plan.read import plan_json_schema
from interlock.workflows.plan.tasks import AgentWork, Backoff, Gate, Limits, Patch, PlanPart, Task, Terms

DESCRIBED: tuple[tuple[str, type[PlanPart]], ...] = (
    ("The plan", Plan),
    ("A workstream", Workstream),
    ("A task", Task),
    ("`agent`", AgentWork),
    ("`patch`", Patch),
    ("A gate", Gate),
    ("`defaults`", Terms),
    ("`limits`", Limits),
    ("`backoff`", Backoff),
    ("`repository`", PlannedRepository),
    ("A phase", Phase),
    ("A tool", Tool),
)
WORDS = {"boolean": "true or false", "integer": "whole number", "string": "text", "object": "mapping"}


def plan_reference() -> str:
    """A heading and a table for each mapping of a plan."""
    return "\n\n".join(_section(title, part) for title, part in DESCRIBED)


def _section(title: str, part: type[PlanPart]) -> str:
    schema = _schema_of(part)
    rows = [_row(name, field, schema["properties"][name]) for name, field in _own_first(part)]
    about = (part.__doc__ or "").splitlines()[0]
    return "\n".join(
        [f"### {title}", "", about, "", "| field | takes | default | meaning |", "|---|---|---|---|", *rows]
    )


def _schema_of(part: type[PlanPart]) -> dict[str, Any]:
    whole = plan_json_schema()
    found: dict[str, Any] = whole if part is Plan else whole["$defs"][part.__name__]
    return found


def _own_first(part: type[PlanPart]) -> list[tuple[str, FieldInfo]]:
    return sorted(part.model_fields.items(), key=lambda item: item[0] not in part.__annotations__)


def _row(name: str, field: FieldInfo, schema: dict[str, Any]) -> str:
    meaning = (field.description or "") + _bounds(field)
    return f"| `{name}` | {_takes(schema)} | {_default(field)} | {meaning} |"


def _bounds(field: FieldInfo) -> str:
    found = {edge: getattr(rule, edge) for rule in field.metadata for edge in ("ge", "gt", "le") if hasattr(rule, edge)}
    words = {"ge": "at least", "gt": "more than", "le": "at most"}
    said = ", ".join(
        f"{words[edge]} {value:,g}" if value < 1e6 else f"{words[edge]} {value:,}" for edge, value in found.items()
    )
    return f" ({said})" if said else ""


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if isinstance(field.default, PlanPart):
        return "see below"
    if field.default is None or field.default in ((), {}):
        return "none"
    return f"`{_written(field.default)}`"


def _written(value: object) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(_written(each) for each in value) + "]"
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def _takes(schema: dict[str, Any]) -> str:
    """A JSON Schema in a few words."""
    if "$ref" in schema:
        return "mapping"
    if choices := schema.get("anyOf"):
        return " or ".join(dict.fromkeys(_takes(each) for each in choices if each.get("type") != "null"))
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"])
    if schema.get("type") == "array":
        inner = schema["items"]
        return "list of " + ("mappings" if "$ref" in inner else {"integer": "numbers"}.get(inner["type"], "texts"))
    return WORDS.get(schema.get("type", ""), str(schema.get("type", "anything")))
