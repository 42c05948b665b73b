"""`interlock runs`: list the newest runs."""

from interlock.cli.lib.output import AsJson, Limit, print_json
from interlock.cli.lib.projects import OnlyProject, print_list
from interlock.db.connection import transaction
from interlock.db.orchestration import plans
from interlock.workers.client.client import Client


def runs(
    project: OnlyProject = None,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """List the newest runs.

    \b
    Example:
      interlock runs --limit 5 --json | jq -r '.[].name'
    """
    with Client() as client, transaction(client.runtime.database) as connection:
        found = [
            dict(row) for row in plans.newest_runs(connection, projects=[project] if project else None, limit=limit)
        ]
    if not print_json(found, as_json):
        columns = ("name", "plan", "state", "priority", "created_at", "started_at", "completed_at")
        print_list("newest runs", found, columns, project)
