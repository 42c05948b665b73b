"""The newest moves of an instance, as the `show` commands of breakers, supervised workers and jobs have them."""

from typing import Any
from uuid import UUID

from interlock.workers.client.client import Client

NEWEST = 5
SHOWN = ("created_at", "from_state", "to_state", "trigger", "triggered_by", "metadata")


def newest_moves(client: Client, workflow_id: UUID) -> list[dict[str, Any]]:
    """The newest moves of an instance, oldest first: from where to where, when, who and with what metadata."""
    return [{name: dict(event)[name] for name in SHOWN} for event in client.history(workflow_id)[-NEWEST:]]
