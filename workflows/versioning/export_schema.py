"""The schema of a definition's form (`workflows.versioning.export`), to validate a form from a file."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from interlock.workflows.output.schema_messages import schema_message


class FormPart(BaseModel):
    """A part of a form; unknown fields, from a newer Interlock, are ignored."""

    model_config = ConfigDict(extra="allow")


class State(FormPart):
    """A state."""

    terminal: bool


class MoveForm(FormPart):
    """An arrow: trigger, source state, destination, and who may fire it."""

    trigger: str
    source: str
    dest: str
    by: list[str]


class Public(FormPart):
    """An exported form."""

    type: str
    version: str = Field(pattern=r"^(0|[1-9][0-9]{0,8})(\.(0|[1-9][0-9]{0,8})){2}$")
    initial: str
    states: dict[str, State]
    transitions: list[MoveForm]


class Rule(FormPart):
    """A rule, which applies to one or more arrows of a trigger."""

    trigger: str
    sources: list[str] = []


class LinkForm(FormPart):
    """A link to another instance."""

    role: str


class RecordedForm(Public):
    """A recorded form."""

    rules: list[Rule]
    deadlines: dict[str, dict[str, Any]]
    links: list[LinkForm]
    fields: list[tuple[str, Any, Any]]
    context: dict[str, Any] | None = None
    data: dict[str, dict[str, Any]] = {}
    birth_effects: list[Any]
    required_metadata: list[str] = []


PUBLIC, RECORDED = TypeAdapter(Public), TypeAdapter(RecordedForm)


def validated(value: Any) -> dict[str, Any]:
    """Return a parsed value if it is a valid form.

    Raises:
        ValueError: it is not; the message says where.
    """
    recorded = isinstance(value, dict) and "rules" in value
    try:
        (RECORDED if recorded else PUBLIC).validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "it"
        raise ValueError(f"{where[:200]}: {schema_message(first)}") from None
    form: dict[str, Any] = value
    return form
