"""The query of `patch list` and `quarantine list`: the newest entries of the patch ledger."""

from collections.abc import Iterable
from typing import Annotated

import typer

from interlock.cli.lib.listing import Listing, Row
from interlock.db.core import instances
from interlock.db.orchestration import patches

RunName = Annotated[str, typer.Option("--run", help="Only patches of this run (name or UUID).")]


def newest_entries(asked: Listing, run: str, states: tuple[str, ...]) -> Iterable[Row]:
    """The newest entries.

    Args:
        asked: of all projects, it looks a run's name up in the client's own.
        run: a run's name or UUID; empty: entries of all runs.
        states: empty: entries in any state.
    """
    within = asked.project or asked.client.project
    run_id = instances.find(asked.connection, run, within, "run")["id"] if run else None
    return patches.page(asked.connection, asked.portion, run=run_id, states=states)
