"""Fields that say what a task or gate runs. They are not allowed in its context, which any creator could write."""

from collections.abc import Mapping
from typing import Any

from interlock.workflows.definition import Definition

TYPES = ("task", "test_gate")
# Fields of a plan's tasks and gates that are stored outside the context; PostgreSQL has the same list (0010).
COMMAND_FIELDS = (
    *("command", "shell", "env", "env_from", "cwd", "limits"),
    *("sandbox", "reads", "network", "patch_id", "message"),
)


def reserved_fields_error(definition: Definition, context: Mapping[str, Any]) -> str | None:
    """The error message for a context of a task or gate with such fields; None if it has none."""
    if definition.type not in TYPES or definition.version.startswith("0."):
        return None
    if not (present := [each for each in COMMAND_FIELDS if each in context]):
        return None
    kind = "gate" if definition.type == "test_gate" else definition.type
    return f"{', '.join(present)}: what a {kind} runs comes from a plan: submit one with `interlock run PLAN`"


def without_command(context: Mapping[str, Any]) -> dict[str, Any]:
    """A context without these fields, which older versions stored there."""
    return {name: value for name, value in context.items() if name not in COMMAND_FIELDS}
