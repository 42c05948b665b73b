"""`migrate`, `replay`, `doctor`, `dead`, `redrive`: what operators run."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from cli.output import FAILED, AsJson, console, print_json, print_table
from cli.reading import as_uuids
from cli.replaying import with_bars
from db import definitions, effects, migrate, requests
from db.connect import transaction
from workers import operators
from workers.client import Client
from workers.doctor import examine
from workers.replay import REVIEWER
from workflows.errors import BadInput

REPLAY_HELP = """Turn real pull requests into stories and reviews, and drive them through Celery to done and merged.

FILE has one JSON object a line: number, title, merged_by, merged_at, commits (author, at). Interrupted, it resumes when
run again; a second replay changes nothing.

\b
Examples:
  interlock replay examples/pull_requests.jsonl
  interlock replay pull_requests.jsonl --json
"""
REDRIVE_HELP = """Give dead requests and effects a new set of attempts: those named, or --all. Who did it is kept with
them, and in the events they lead to (`redriven_by`).

\b
Example:
  interlock dead; interlock redrive --all
"""


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("replay", help=REPLAY_HELP)(replay_)
    app.command("doctor")(doctor)
    app.command("dead")(dead)
    app.command("redrive", help=REDRIVE_HELP)(redrive)
    app.command("migrate")(migrate_)


def replay_(
    file: Annotated[Path, typer.Argument(help="JSON lines, one pull request each.")],
    reviewer: Annotated[str, typer.Option(help="Who approves what its author merged.")] = REVIEWER,
    patience: Annotated[float, typer.Option(help="Give up when nothing moved for so many seconds.")] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Replay a file."""
    with Client() as client:
        done = with_bars(client, file, reviewer=reviewer, patience_seconds=patience, quiet=as_json)
    if as_json:
        print_json(done)
    else:
        print_table("replayed", [asdict(done)], asdict(done))


def doctor(as_json: AsJson = False) -> None:
    """Look at every part; say what is wrong and what would help. Exit code 1: something is.

    \b
    Example:
      interlock doctor --json | jq '.findings[] | select(.level != "ok")'
    """
    with Client() as client:
        findings = examine(client.runtime)
    well = all(finding.level != "fail" for finding in findings)
    if as_json:
        print_json({"ok": well, "findings": findings})
    else:
        print_table("doctor", [asdict(finding) for finding in findings], ("check", "level", "says", "cure"))
    raise typer.Exit(0 if well else FAILED)


def dead(
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many of each.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List requests and effects whose attempts are used up, with what went wrong.

    \b
    Example:
      interlock dead; interlock redrive --all
    """
    with Client() as client, transaction(client.runtime.database) as connection:
        triggers = [dict(row) | {"id": row["request_id"]} for row in requests.dead(connection, limit=limit)]
        acts = [dict(row) for row in effects.dead(connection, limit=limit)]
    if as_json:
        print_json({"requests": triggers, "effects": acts})
        return
    columns = ("id", "workflow_type", "entity_id", "attempts", "finished_at", "error")
    print_table(f"{len(triggers)} dead requests", triggers, ("trigger", *columns))
    print_table(f"{len(acts)} dead effects", acts, ("name", *columns))


def redrive(
    by: Annotated[
        str, typer.Option(help="Who does it; kept.", default_factory=operators.os_user, show_default="the OS user")
    ],
    ids: Annotated[list[str] | None, typer.Argument(help="Ids that `interlock dead` shows.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    as_json: AsJson = False,
) -> None:
    """Revive what is dead."""
    if bool(ids) == everything:
        raise BadInput("name the ids to redrive (`interlock dead` lists them), or say --all")
    with Client() as client:
        with transaction(client.runtime.database) as connection:
            triggers = [dict(row) for row in requests.redrive(connection, ids, by=by)]
            acts = effects.redrive(connection, as_uuids(ids) if ids else None, by=by)
        client.runtime.hints.lanes(triggers)
        client.runtime.hints.effects(acts)
    if ids and not triggers and not acts:
        raise BadInput(f"none of these is dead: {', '.join(ids)}. `interlock dead` lists what is.")
    revived = [row["request_id"] for row in triggers] + [str(row["id"]) for row in acts]
    if as_json:
        print_json({"redriven": revived})
    else:
        console.print(f"{len(revived)} redriven", *revived, sep="\n  ", highlight=False, soft_wrap=True)


def migrate_(as_json: AsJson = False) -> None:
    """Bring the database to the newest schema and record the definitions.

    \b
    Example:
      interlock migrate --json | jq .revision
    """
    with Client() as client:
        migrate.upgrade(client.runtime.database)
        with transaction(client.runtime.database) as connection:
            recorded = [
                f"{each.type} {each.version}" for each in definitions.record(connection, client.runtime.catalogue)
            ]
            granted = operators.first(connection, client.runtime.settings.operators)
            revision, _ = migrate.revision(connection)
    if as_json:
        print_json({"revision": revision, "recorded": recorded, "operators": granted})
    else:
        console.print(f"schema at revision {revision}; recorded: {', '.join(recorded) or 'nothing new'}")
        if granted:
            console.print(f"operators: {', '.join(granted)}", highlight=False, markup=False)
