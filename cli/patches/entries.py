"""Ledger entries that a list of patches shows."""

from typing import Any

from interlock.db.connection import transaction
from interlock.db.core import instances
from interlock.db.orchestration import patches
from interlock.workers.client.client import Client


def newest(run: str, project: str | None, states: tuple[str, ...], limit: int) -> list[dict[str, Any]]:
    """The newest entries: of a run (a name or UUID; empty: of all), of a project, and in these states, if given."""
    with Client() as client, transaction(client.runtime.database) as connection:
        run_id = instances.find(connection, run, project or client.project, "run")["id"] if run else None
        return [dict(row) for row in patches.page(connection, project=project, run=run_id, states=states, limit=limit)]
