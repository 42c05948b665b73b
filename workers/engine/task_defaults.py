"""The terms that a task's creator left out, filled in at its birth, so that its own context says them."""

from collections.abc import Mapping
from typing import Any

from workers.settings import Settings
from workflows.definition import Definition


def with_terms(settings: Settings, definition: Definition, context: Mapping[str, Any]) -> Mapping[str, Any]:
    """A task's context with its retries and its timeout, in seconds; any other as it is (SSOT 6.3, ruling 7).

    Args:
        settings: of whoever creates it. Changing them later changes no task that is there.
        definition: what is to be born. Tasks of the older lineage (0.x) have terms of their own.
        context: as the plan or the creator gave it.
    """
    if definition.type != "task" or definition.version.startswith("0."):
        return context
    terms = {"max_retries": settings.task_retries, "timeout_sec": settings.task_timeout_seconds}
    return {**context, **{name: value for name, value in terms.items() if context.get(name) is None}}
