"""`interlock override list`: the moves that operators made by hand."""

from typing import Annotated

import typer

from interlock.cli.lib.output import AsJson, NewestLimit, print_json
from interlock.cli.lib.projects import OnlyProject, print_list
from interlock.db.connection import transaction
from interlock.db.operations import overrides
from interlock.workers.client.client import Client

COLUMNS = ("transitioned_at", "operator", "entity_type", "entity_id", "from_state", "to_state", "reason")


def list_(
    hours: Annotated[int, typer.Option(min=1, max=87_600, help="How many hours to look back.")] = 24,
    project: OnlyProject = None,
    by: Annotated[str | None, typer.Option(help="Only this operator's.")] = None,
    limit: NewestLimit = 100,
    as_json: AsJson = False,
) -> None:
    """List the moves that operators made by hand, newest first, one line per move.

    \b
    Examples:
      interlock override list
      interlock override list --hours 168 --by ada --json | jq -r '.[].reason'
    """
    with Client() as client, transaction(client.runtime.database) as connection:
        found = [dict(row) for row in overrides.newest(connection, project=project, hours=hours, by=by, limit=limit)]
    if not print_json(found, as_json):
        print_list(f"moves by hand in the last {hours} h", found, COLUMNS, project)
