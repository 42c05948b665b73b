"""`migrate`, `replay`, `doctor`, `redrive`, `demo`: what operators run."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from cli import demo
from cli.output import FAILED, AsJson, console, print_json, print_table
from cli.replaying import with_bars
from db import definitions, migrate, requests
from db.connect import transaction
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


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("replay", help=REPLAY_HELP)(replay_)
    app.command("doctor", help="Look at every part; say what is wrong and what would help. Exit code 1: something is.")(
        doctor
    )
    app.command("redrive", help="Give dead requests a new set of attempts: those named, or --all.")(redrive)
    app.command("migrate", help="Bring the database to the newest schema and record the definitions.")(migrate_)
    app.command("demo", help=demo.HELP)(demo.demo)


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
    """Examine everything."""
    with Client() as client:
        findings = examine(client.runtime)
    well = all(finding.level != "fail" for finding in findings)
    if as_json:
        print_json({"ok": well, "findings": findings})
    else:
        print_table("doctor", [asdict(finding) for finding in findings], ("check", "level", "says", "cure"))
    raise typer.Exit(0 if well else FAILED)


def redrive(
    request_ids: Annotated[list[str] | None, typer.Argument(help="request_ids of dead requests.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All dead requests.")] = False,
    as_json: AsJson = False,
) -> None:
    """Revive dead requests."""
    if bool(request_ids) == everything:
        raise BadInput("name the request_ids to redrive, or say --all")
    with Client() as client:
        with transaction(client.runtime.database) as connection:
            revived = [dict(row) for row in requests.redrive(connection, None if everything else request_ids)]
        client.runtime.hints.lanes(revived)
    if as_json:
        print_json({"redriven": [row["request_id"] for row in revived]})
    else:
        print_table(f"{len(revived)} redriven", revived, ("request_id", "workflow_type", "entity_id", "trigger"))


def migrate_(as_json: AsJson = False) -> None:
    """Migrate and record."""
    with Client() as client:
        migrate.upgrade(client.runtime.database)
        with transaction(client.runtime.database) as connection:
            recorded = [
                f"{each.type} {each.version}" for each in definitions.record(connection, client.runtime.catalogue)
            ]
            revision, _ = migrate.revision(connection)
    if as_json:
        print_json({"revision": revision, "recorded": recorded})
    else:
        console.print(f"schema at revision {revision}; recorded: {', '.join(recorded) or 'nothing new'}")
