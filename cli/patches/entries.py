"""The query of `patch list` and `quarantine list`: the newest entries of the patch ledger."""

from typing import Any

from interlock.db.connection import transaction
from interlock.db.core import instances
from interlock.db.orchestration import patches
from interlock.workers.client.client import Client


def newest_entries(run: str, project: str | None, states: tuple[str, ...], limit: int) -> list[dict[str, Any]]:
    """The newest `limit` entries.

    Args:
        run: a run's name or UUID; empty: entries of all runs.
        project: None: entries of all projects, and a run's name is looked up in the client's own.
        states: empty: entries in any state.
        limit: how many at most.
    """
    with Client() as client, transaction(client.runtime.database) as connection:
        run_id = instances.find(connection, run, project or client.project, "run")["id"] if run else None
        found = patches.page(
            connection, projects=[project] if project else None, run=run_id, states=states, limit=limit
        )
        return [dict(row) for row in found]
