"""`interlock backup` and `restore`."""

from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from alembic.script import ScriptDirectory
from rich.progress import BarColumn, Progress, TextColumn

from cli.output import FAILED, AsJson, console, errors, print_json, print_table
from db import migrate
from supervisor.backups import back_up
from supervisor.embedded import running
from supervisor.restoring import restore as restored
from workers import lost as losses
from workers.auditing.verifying import verify
from workers.runtime import Runtime
from workers.settings import Settings, settings

BACKUP_HELP = """Back PostgreSQL up while everything goes on working: compressed, with checksums, whole or not there.

DIR (HOME/backups) gets a directory for each. `down --purge` leaves backups alone. A server of your own is backed up
too, if DATABASE_URL's role may replicate; it is then restored as any base backup of PostgreSQL is.

\b
Examples:
  interlock backup
  interlock backup /mnt/backups --json | jq -r .backup
"""
RESTORE_HELP = """Put a backup into an empty home: checked first, there whole or not at all, verified afterwards.

Prints what was committed after it was taken, as far as the journal or the stream of the lost home can tell.
Exit code 1: history does not verify. Then start it: INTERLOCK_HOME=HOME interlock up --detach

\b
Examples:
  interlock restore .interlock/backups/interlock-20261121T220000000000Z --into ../again
  interlock restore BACKUP --into ../again --journal .interlock/.state
"""
NAMED = 20


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("backup", help=BACKUP_HELP)(backup)
    app.command("restore", help=RESTORE_HELP)(restore)


def backup(
    directory: Annotated[Path | None, typer.Argument(metavar="DIR", help="Where backups lie.")] = None,
    as_json: AsJson = False,
) -> None:
    """Take a backup."""
    chosen = settings()
    url = chosen.resolved_database_url().replace("postgresql+psycopg://", "postgresql://")
    with _bar("copying", as_json) as bar:
        place, made = back_up(url, (directory or chosen.home / "backups").resolve(), chosen.signing_directory, _on(bar))
    size = sum(made.sizes.values())
    if as_json:
        print_json({"backup": str(place), "bytes": size, **asdict(made)})
    else:
        console.print(f"{place}", highlight=False, soft_wrap=True)
        says = f"{made.events_after:,} events, {size / 1e6:,.1f} MB, as of {made.taken_at}"
        console.print(f"{says}; put it back with `interlock restore`", highlight=False, soft_wrap=True)


def restore(
    source: Annotated[Path, typer.Argument(metavar="BACKUP", help="The directory that `backup` made.")],
    into: Annotated[Path | None, typer.Option(metavar="HOME", help="An empty home. [INTERLOCK_HOME]")] = None,
    journal: Annotated[
        Path | None, typer.Option(help="Journal of the lost home, a directory or a file: tells what is missing.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Restore a backup."""
    chosen = settings()
    home = chosen.model_copy(update={"home": into or chosen.home, "database_url": None, "broker_url": None})
    with _bar("checking", as_json) as bar:
        found = restored(home, source, _revisions(), _on(bar))
    with running(home, keep=True):
        runtime = Runtime(home)
        try:
            answer = _examine(runtime, chosen, journal, datetime.fromisoformat(found.taken_at))
        finally:
            runtime.close()
    answer |= {"home": str(home.home.resolve()), "taken_at": found.taken_at}
    if as_json:
        print_json(answer)
    else:
        _say(answer)
    raise typer.Exit(0 if answer["ok"] and answer["events"] >= found.events_before else FAILED)


def _examine(runtime: Runtime, chosen: Settings, journal: Path | None, taken_at: datetime) -> dict[str, Any]:
    migrate.upgrade(runtime.database)
    verdict = verify(runtime, with_journal=False)  # what came after the backup is lost, not cut
    told = list(losses.of_journal(journal, taken_at)) if journal else []
    if chosen.redis_url or chosen.broker_url:  # a stream of their own, which outlived the home
        redis = Runtime(chosen).redis
        told += losses.of_stream(redis, taken_at) if redis else ()
    gone = {each.event_id: each for each in losses.lost(runtime.database, told)}
    return {
        "ok": verdict.ok,
        "instances": verdict.instances,
        "events": verdict.transitions,
        "problems": verdict.problems,
        "asked": bool(journal) or bool(told),
        "lost": [asdict(each) for each in gone.values()],
    }


def _say(answer: dict[str, Any]) -> None:
    says = "[green]verified[/]" if answer["ok"] else f"[bold red]{len(answer['problems'])} problems[/]"
    console.print(f"{says}: {answer['instances']:,} instances, {answer['events']:,} events, as of {answer['taken_at']}")
    for problem in answer["problems"][:NAMED]:
        console.print(f"  {problem.instance} {problem.seq or ''}: {problem.says}", highlight=False, soft_wrap=True)
    gone = answer["lost"]
    if gone:
        print_table(
            f"{len(gone)} events came after it and are lost", gone[:NAMED], ("at", "entity", "trigger", "to_state")
        )
    elif not answer["asked"]:
        console.print("what came after it is not known: no --journal was given")
    else:
        console.print("nothing that was told elsewhere is missing")
    console.print("agents may fire again what they fired since: request ids make that harmless", highlight=False)
    console.print(f"  $ INTERLOCK_HOME={answer['home']} interlock audit key --new", highlight=False, soft_wrap=True)
    console.print(f"  $ INTERLOCK_HOME={answer['home']} interlock up --detach", highlight=False, soft_wrap=True)


def _revisions() -> list[str]:
    return [each.revision for each in ScriptDirectory(str(migrate.MIGRATIONS)).walk_revisions()]


def _bar(says: str, quiet: bool) -> Progress:
    columns = (TextColumn(says), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    return Progress(*columns, console=errors, transient=True, disable=quiet or not errors.is_terminal)


def _on(bar: Progress) -> Any:
    task = bar.add_task("work", total=None)
    return lambda done, total: bar.update(task, completed=done, total=max(done, total))
