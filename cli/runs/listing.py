"""`interlock runs`: list the newest runs."""

from collections.abc import Iterable

from interlock.cli.lib.listing import Listing, Row, lists
from interlock.db.orchestration import plans


@lists("newest run", ("name", "plan", "state", "priority", "created_at", "started_at", "completed_at"), limit=20)
def runs(asked: Listing) -> Iterable[Row]:
    """List the newest runs.

    \b
    Example:
      interlock runs --limit 5 --json | jq -r '.[].name'
    """
    return plans.newest_runs(asked.connection, asked.portion)
