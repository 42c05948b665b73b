"""Fills in a new task's missing retry limit and timeout, so that its own context holds them."""

from collections.abc import Mapping
from typing import Any

from interlock.workers.settings import Settings
from interlock.workflows.definition import Definition


def with_terms(settings: Settings, definition: Definition, context: Mapping[str, Any]) -> Mapping[str, Any]:
    """A task's context with its retry limit and its timeout in seconds; the context of other types unchanged (TASK-8).

    Args:
        settings: the creating process's. Changing them later does not change existing tasks.
        definition: of the instance to be created. Tasks of the legacy lineage (0.x) have their own defaults.
        context: from the plan or the creator.
    """
    if definition.type != "task" or definition.version.startswith("0."):
        return context
    terms = {"max_retries": settings.task_retries, "timeout_sec": settings.task_timeout_seconds}
    return {**context, **{name: value for name, value in terms.items() if context.get(name) is None}}
