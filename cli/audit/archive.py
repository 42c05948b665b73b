"""`interlock archive`: move instances that ended long ago into the archive; list and show archived instances."""

from typing import Annotated

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn

from interlock.cli.lib.output import AsJson, Limit, errors, one_line, print_json, say
from interlock.cli.lib.projects import OnlyProject, print_list
from interlock.db.connection import transaction
from interlock.db.core import archive, instances
from interlock.workers.client.client import Client
from interlock.workers.operations.archiver import ArchivePass, archive_ended, rules_of
from interlock.workflows.errors import BadInput
from interlock.workflows.output.counts import number_of
from interlock.workflows.output.suggestions import offered

app = typer.Typer(help="Instances that ended long ago, moved aside with their whole history.", no_args_is_help=True)


@app.command("run")
def run(
    older_than: Annotated[
        float | None,
        typer.Option(metavar="DAYS", min=0, help="Minimum days since the end. [INTERLOCK_ARCHIVE_AFTER_DAYS, else 90]"),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be moved; move nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Move instances that ended long ago into the archive, with their history and all rows that belong to them.

    A run and its members move together, and so do instances that are linked to each other. Such a group stays where it
    is if a live instance is linked to it, if it has dead requests, or if its events are not relayed everywhere yet.
    `interlock show`, `history` and `audit verify` also read the archive.

    \b
    Examples:
      interlock archive run --dry-run
      interlock archive run --older-than 60
    """
    with Client() as client:
        rules = rules_of(client.runtime.settings, older_than)
        if rules is None:
            raise BadInput("archiving is off (INTERLOCK_ARCHIVE_AFTER_DAYS=0); give --older-than DAYS")
        columns = (SpinnerColumn(), TextColumn("{task.description}"))
        with Progress(*columns, console=errors, transient=True, disable=as_json or not errors.is_terminal) as bar:
            task = bar.add_task("looking")
            message = "{0.instances:,} instances, {0.events:,} events archived"
            done = archive_ended(
                client.runtime.database,
                rules,
                dry_run=dry_run,
                progress=lambda so_far: bar.update(task, description=message.format(so_far)),
            )
        if not dry_run and done.instances:
            with client.runtime.database.connect() as connection:
                archive.vacuum(connection)
    _print_result(done, dry_run, as_json)


def _print_result(done: ArchivePass, dry_run: bool, as_json: bool) -> None:
    moved = {"dry_run": dry_run, "instances": done.instances, "events": done.events, "held": dict(done.held)}
    if print_json(moved, as_json):
        return
    would = "would be archived" if dry_run else "archived"
    say(f"{number_of(done.instances, 'instance')} with {number_of(done.events, 'event')} {would}")
    for why, count in done.held.most_common():
        say(f"  {count:,} stay: {why}")


@app.command("list")
def list_(
    type_: Annotated[str, typer.Option("--type", help="Only this workflow type.")] = "",
    project: OnlyProject = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List archived instances, newest first.

    \b
    Example:
      interlock archive list --type run
    """
    with Client() as client, transaction(client.runtime.database) as connection:
        found = [dict(row) for row in archive.page(connection, project=project, type_=type_ or None, limit=limit)]
        total = archive.count(connection)
    if not print_json(found, as_json):
        columns = ("workflow_type", "entity_id", "current_state", "version", "updated_at", "archived_at")
        print_list(f"{len(found)} of {number_of(total, 'archived instance')}", found, columns, project)


@app.command("show")
def show(
    ref: Annotated[str, typer.Argument(help="Entity id, TYPE/ENTITY_ID where that is ambiguous, or UUID.")],
    as_json: AsJson = False,
) -> None:
    """Show an archived instance with the rows that were archived with it.

    \b
    Example:
      interlock archive show story/S-1 --json
    """
    with Client() as client, transaction(client.runtime.database) as connection:
        found = instances.find_with_archived(connection, ref, client.project)
        if found["archived_at"] is None:
            raise BadInput(f"{ref!r} is not archived: {offered('show', found['id'])}")
        kept = [dict(row) for row in archive.records_of(connection, found["id"])]
        events = len(archive.history(connection, found["id"]))
    if print_json(dict(found) | {"events": events, "records": kept}, as_json):
        return
    name = (f"{found['workflow_type']}/{found['entity_id']}", "bold")
    say(name, " ended in ", (found["current_state"], "bold"), f" after {number_of(events, 'event')} ({found['id']})")
    say(f"archived at {found['archived_at']:%Y-%m-%d %H:%M:%S} UTC")
    for each in kept:
        say(f"{each['kind']} {each['key']} {one_line(each['body'])}")
