"""Who may fire the triggers that an instance's state accepts, in its project."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

from interlock.db.core import narrowings
from interlock.workflows.authority import narrowed
from interlock.workflows.definition import Definition


def who_may(connection: Connection, definition: Definition, instance: Mapping[str, Any]) -> dict[str, list[str]]:
    """Trigger -> by which authorities it may be fired (AUTHORITY-1), of those that have a transition out of its state.

    Args:
        connection: any.
        definition: of the instance.
        instance: its row: its state and its project, which may narrow rights (NARROWING-3).
    """
    project, type_ = instance["project"], definition.type
    left = {row["trigger"]: row["to"] for row in narrowings.listed(connection, project=project, type_=type_)}
    return {
        trigger: narrowed(definition.authorities[trigger], left.get(trigger))
        for trigger in definition.legal(instance["current_state"])
    }
