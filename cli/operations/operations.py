"""`doctor`, `dead`, `redrive`: commands for operators."""

from dataclasses import asdict
from typing import Annotated

import typer

from interlock.cli.lib import projects
from interlock.cli.lib.options import person
from interlock.cli.lib.output import FAILED, AsJson, print_json, print_table, say
from interlock.cli.lib.projects import OnlyProject, print_list
from interlock.db.connection import transaction
from interlock.db.core import effects, requests
from interlock.workers.client.client import Client
from interlock.workers.operations.doctor import examine
from interlock.workers.overrides.redrive import redrive as redrive_now
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workflows.errors import BadInput
from interlock.workflows.output.counts import number_of

NAMED = 20  # ids in one line of the requests that are left
LEFT = {
    requests.QUARANTINED: "name them to release them",
    requests.UNREADABLE: "fire them again with data within bounds, and `interlock quarantine request` them",
}


def doctor(as_json: AsJson = False) -> None:
    """Check every part; show what is wrong and how to fix it. Exit code 1: something is wrong.

    \b
    Example:
      interlock doctor --json | jq '.findings[] | select(.level != "ok")'
    """
    projects.use_none()
    with Client() as client:
        findings = examine(client.runtime)
    well = all(finding.level != "fail" for finding in findings)
    if not print_json({"ok": well, "findings": findings}, as_json):
        print_table("doctor", [asdict(finding) for finding in findings], ("check", "level", "message", "cure"))
    raise typer.Exit(0 if well else FAILED)


def dead(
    project: OnlyProject = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Maximum number of each.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List requests and effects whose attempts are used up and that can be redriven, with their errors. An effect whose
    failure was told, and whose instance has moved on, is none of them: `interlock effect list --status dead`.

    \b
    Example:
      interlock dead; interlock redrive --all --reason "the mail server answers again"
    """
    with Client() as client, transaction(client.runtime.database) as connection:
        found = requests.dead(connection, project=project, limit=limit)
        triggers = [dict(row) | {"id": row["request_id"]} for row in found]
        acts = [dict(row) for row in effects.dead(connection, project=project, limit=limit)]
    if print_json({"requests": triggers, "effects": acts}, as_json):
        return
    columns = ("id", "workflow_type", "entity_id", "attempts", "finished_at", "error")
    print_list(number_of(len(triggers), "dead request"), triggers, ("trigger", *columns), project)
    print_list(number_of(len(acts), "dead effect"), acts, ("name", *columns), project)


def redrive(
    by: Annotated[str, person("The responsible operator; stored.")],
    reason: Annotated[str, typer.Option(help="Why; stored.")],
    ids: Annotated[list[str] | None, typer.Argument(help="Ids, as `interlock dead` shows them.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Redrive all of them.")] = False,
    as_json: AsJson = False,
) -> None:
    """Give dead requests and effects a new set of attempts: the IDs given, or --all.

    Only an operator may. --by and --reason are stored with them and in the resulting events (`redriven_by`,
    `redriven_because`). --all leaves out quarantined requests, which must be released by id, and requests that
    cannot be read.

    \b
    Example:
      interlock dead; interlock redrive --all --reason "the mail server answers again"
    """
    if bool(ids) == everything:
        raise BadInput("name the ids to redrive (`interlock dead` lists them), or give --all")
    with Client() as client:
        done = redrive_now(client.runtime, ids or None, OverrideOrder(by, reason))
    if not print_json(
        {"redriven": done.ids, "by": by, "reason": reason} | ({"left": done.left} if everything else {}), as_json
    ):
        say(f"{len(done.ids)} redriven")
        for each in done.ids:
            say(f"  {each}")
        for why, what in LEFT.items():
            if named := done.left.get(why):
                more = f" and {len(named) - NAMED} more" if len(named) > NAMED else ""
                say(f"{len(named)} left: {why} ({', '.join(named[:NAMED])}{more}); {what}")
