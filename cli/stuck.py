"""`interlock stuck`: who stands still, since when, why, and the command that would help."""

from dataclasses import asdict
from typing import Annotated
from uuid import UUID

import typer
from rich.markup import escape

from cli.output import AsJson, console, print_json
from workers.client import Client
from workers.stuck.facts import span
from workers.stuck.look import look
from workflows.errors import BadInput

STUCK_HELP = """Show who has stood too long where nothing keeps them: since when, why, and the command that would help.

A running task, an executing workstream, a worker that is not heard of and whatever else is at no end have thresholds of
their own (`INTERLOCK_STUCK_…_SECONDS`); a dead request or effect shows at once. Exit code 1: something is stuck.

\b
Examples:
  interlock stuck
  interlock stuck --type task --json
  interlock stuck --all                whatever waits, however short
"""


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("stuck", help=STUCK_HELP)(stuck)


def stuck(
    type_: Annotated[str, typer.Option("--type", help="Only this workflow type.")] = "",
    project: Annotated[UUID | None, typer.Option(help="Only this project.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Whatever waits, without thresholds.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many, the longest first.")] = 100,
    as_json: AsJson = False,
) -> None:
    """Show what is stuck."""
    with Client() as client:
        known = {each.type for each in client.runtime.catalogue}
        if type_ and type_ not in known:
            raise BadInput(f"no workflow type {type_!r}. There are: {', '.join(sorted(known))}.")
        found = look(client.runtime, type_=type_ or None, project_id=project, everything=everything, limit=limit)
    if as_json:
        print_json([asdict(each) for each in found])
    elif not found:
        console.print("nothing is stuck")
    for each in () if as_json else found:
        name = f"[bold]{escape(each.workflow_type)}/{escape(each.entity_id)}[/]"
        console.print(f"{name} {escape(each.state)} for {span(each.seconds)}", highlight=False, soft_wrap=True)
        console.print(f"  {escape(each.reason)}", highlight=False, soft_wrap=True)
        console.print(f"  $ {escape(each.command)}", highlight=False, soft_wrap=True)
    raise typer.Exit(1 if found and not everything else 0)
