"""The inputs of a task: results of tasks before it, which its command or agent gets."""

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from interlock.db.orchestration import results
from interlock.workflows.errors import InterlockError

INPUTS_BYTES = 1 << 20  # of all inputs together: Linux gives a program about 2 MiB for its variables and arguments


class InputMissing(InterlockError):
    """An input of a task is missing: the task that it names gave no such result. Correct that one, and run it again."""


def gathered(connection: Connection, context: Mapping[str, Any], project: str) -> dict[str, Any]:
    """The values of a task's inputs, by their names.

    Args:
        connection: the caller's transaction.
        context: the task's.
        project: the task's; results of other projects are not given.

    Raises:
        InputMissing: a result is missing, lacks the key, or they are too large together.
    """
    found = {name: _value(connection, name, each, project) for name, each in context.get("inputs", {}).items()}
    if found and (size := len(json.dumps(found, ensure_ascii=False).encode())) > INPUTS_BYTES:
        raise InputMissing(f"the inputs are {size:,} bytes as JSON; together they may be {INPUTS_BYTES:,}")
    return found


def _value(connection: Connection, name: str, wanted: Mapping[str, str], project: str) -> Any:
    result = results.of_task(connection, UUID(wanted["task"]), project)
    if result is None:
        raise InputMissing(f"input {name}: there is no task {wanted['task']} in project {project}")
    if not result.given:
        why = "gave no result" if result.state == "completed" else f"is {result.state}, so it has no result"
        raise InputMissing(f"input {name}: task {result.task} {why}")
    if (key := wanted.get("key")) is None:
        return result.value
    if not isinstance(result.value, dict) or key not in result.value:
        has = ", ".join(sorted(result.value)[:10]) if isinstance(result.value, dict) else "no keys: it is no object"
        raise InputMissing(f"input {name}: the result of task {result.task} has no key {key!r}; it has {has}")
    return result.value[key]


def as_variables(inputs: Mapping[str, Any]) -> dict[str, str]:
    """The inputs as environment variables: texts as they are, other values as JSON."""
    return {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in inputs.items()
    }
