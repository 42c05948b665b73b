"""`interlock archive`: move what ended long ago, and look at what was moved."""

from typing import Annotated

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn

from cli.output import AsJson, console, errors, print_json, print_table
from db import archive, instances
from db.connect import transaction
from workers.archiving import Done, archive_ended, rules_of
from workers.client import Client
from workflows.errors import BadInput

app = typer.Typer(help="What ended long ago, kept with its whole history beside what is at work.", no_args_is_help=True)

RUN_HELP = """Move what ended long ago into the archive, with its history, requests' traces and typed rows.

Whole runs move together, and whatever is linked to each other; nothing moves that something alive is linked to, that
has dead requests, or that was not relayed everywhere yet. `interlock show`, `history` and `audit verify` read the
archive too.

\b
Examples:
  interlock archive run --dry-run
  interlock archive run --older-than 60
"""
SHOW_HELP = """Show an archived instance with the rows that were kept with it.

\b
Example:
  interlock archive show story/S-1 --json
"""


@app.command("run", help=RUN_HELP)
def run(
    older_than: Annotated[
        float | None, typer.Option(metavar="DAYS", min=0, help="Ended so many days ago. [INTERLOCK_ARCHIVE_AFTER_DAYS]")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be moved; move nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Archive."""
    with Client() as client:
        rules = rules_of(client.runtime.settings, older_than)
        if rules is None:
            raise BadInput("archiving is off (INTERLOCK_ARCHIVE_AFTER_DAYS=0); say --older-than DAYS")
        columns = (SpinnerColumn(), TextColumn("{task.description}"))
        with Progress(*columns, console=errors, transient=True, disable=as_json or not errors.is_terminal) as bar:
            task = bar.add_task("looking")
            says = "{0.instances:,} instances, {0.events:,} events archived"
            done = archive_ended(
                client.runtime.database,
                rules,
                dry_run=dry_run,
                progress=lambda so_far: bar.update(task, description=says.format(so_far)),
            )
        if not dry_run and done.instances:
            with client.runtime.database.connect() as connection:
                archive.tidy(connection)
    _say(done, dry_run, as_json)


def _say(done: Done, dry_run: bool, as_json: bool) -> None:
    if as_json:
        print_json({"dry_run": dry_run, "instances": done.instances, "events": done.events, "held": dict(done.held)})
        return
    would = "would be archived" if dry_run else "archived"
    console.print(f"{done.instances:,} instances with {done.events:,} events {would}", highlight=False)
    for why, count in done.held.most_common():
        console.print(f"  {count:,} stay: {why}", highlight=False)


@app.command("list")
def list_(
    type_: Annotated[str, typer.Option("--type", help="Only this workflow type.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List what was archived, the newest first.

    \b
    Example:
      interlock archive list --type run
    """
    with Client() as client, transaction(client.runtime.database) as connection:
        found = [dict(row) for row in archive.page(connection, type_=type_ or None, limit=limit)]
        total = archive.count(connection)
    if as_json:
        print_json(found)
    else:
        columns = ("workflow_type", "entity_id", "current_state", "version", "updated_at", "archived_at")
        print_table(f"{len(found)} of {total:,} archived instances", found, columns)


@app.command("show", help=SHOW_HELP)
def show(
    ref: Annotated[str, typer.Argument(help="Entity id, TYPE/ENTITY_ID where that is ambiguous, or UUID.")],
    as_json: AsJson = False,
) -> None:
    """Show an archived instance."""
    with Client() as client, transaction(client.runtime.database) as connection:
        found = instances.find_kept(connection, ref)
        if found["archived_at"] is None:
            raise BadInput(f"{ref!r} is not archived: `interlock show {ref}`")
        kept = [dict(row) for row in archive.kept_with(connection, found["id"])]
        events = len(archive.history(connection, found["id"]))
    if as_json:
        print_json(dict(found) | {"events": events, "records": kept})
        return
    name = f"[bold]{found['workflow_type']}/{found['entity_id']}[/]"
    console.print(f"{name} ended in [bold]{found['current_state']}[/] after {events} events ({found['id']})")
    console.print(f"archived at {found['archived_at']:%Y-%m-%d %H:%M:%S} UTC", highlight=False)
    for each in kept:
        console.print(f"{each['kind']} {each['key']}", each["body"])
