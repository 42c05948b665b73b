"""`interlock stuck`: who stands still, since when, why, and the command that would help."""

from dataclasses import asdict
from typing import Annotated
from uuid import UUID

import typer
from rich.markup import escape

from cli.output import AsJson, console, print_json
from workers.client import Client
from workers.stuck.facts import printable, span
from workers.stuck.look import Stuck, survey
from workflows.errors import BadInput

STUCK_HELP = """Show who has stood too long where nothing keeps them: since when, why, and the command that would help.

A running task, an executing workstream, a silent worker, what is due and not
taken, and whatever else is at no end have thresholds of their own
(`INTERLOCK_STUCK_…_SECONDS`); a dead request or effect shows at once.
Exit code 1: something is stuck.

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
    everything: Annotated[bool, typer.Option("--all", help="Whatever waits, without thresholds; exit code 0.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many, the longest first.")] = 100,
    as_json: AsJson = False,
) -> None:
    """Show what is stuck."""
    with Client() as client:
        known = {each.type for each in client.runtime.catalogue}
        if type_ and type_ not in known:
            raise BadInput(f"no workflow type {type_!r}. There are: {', '.join(sorted(known))}.")
        total, found = survey(
            client.runtime, type_=type_ or None, project_id=project, everything=everything, limit=limit
        )
    if as_json:
        print_json([asdict(each) for each in found])
    else:
        _tell(total, found, everything=everything)
    raise typer.Exit(1 if found and not everything else 0)


def _tell(total: int, found: list[Stuck], *, everything: bool) -> None:
    for each in found:
        name = f"[bold]{escape(printable(each.workflow_type))}/{escape(printable(each.entity_id))}[/]"
        _line(f"{name} {escape(each.state)} for {span(each.seconds)}")
        _line(f"  {escape(printable(each.reason))}")
        _line(f"  $ {escape(each.command)}")
    what = "waits" if everything else "is stuck"
    if not found:
        _line(f"nothing {what}" + ("" if everything else "; `interlock doctor` looks at servers and processes"))
    elif total > len(found):
        _line(f"the longest {len(found):,} of {total:,} ({'waiting' if everything else 'stuck'}): --limit shows more")


def _line(text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True)
