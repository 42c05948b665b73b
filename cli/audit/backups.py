"""`interlock backup`: take backups of PostgreSQL, list them, and prove that they can be restored."""

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from interlock.cli.lib.output import FAILED, AsJson, print_json, print_table, say
from interlock.cli.lib.progress_bar import bar, on, stages
from interlock.supervisor.backup.backup import back_up
from interlock.supervisor.backup.drill import Drilled
from interlock.supervisor.backup.drill import drill as drilled
from interlock.supervisor.home import home_of
from interlock.supervisor.servers import endpoints
from interlock.workers.audit import kept_backups, signing_keys
from interlock.workers.audit.backup_manifest import TrustedKeys
from interlock.workers.audit.kept_backups import KeptBackup
from interlock.workers.operations.stuck.words import span
from interlock.workers.settings import Settings, settings
from interlock.workers.system.ended_by import ended_by
from interlock.workflows.errors import BadInput
from interlock.workflows.output.counts import number_of
from interlock.workflows.output.suggestions import offered

NAMED = 20

app = typer.Typer(help="Back up PostgreSQL while everything keeps running.", no_args_is_help=True)


Directory = Annotated[
    Path | None,
    typer.Argument(
        metavar="DIR", help="The directory of backups.", show_default="INTERLOCK_BACKUP_DIRECTORY, else HOME/backups"
    ),
]


@app.command()
def take(
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """Take a backup while everything keeps running: compressed, with checksums.

    Each backup is a new directory in DIR; an interrupted backup leaves none. It is signed with the key that signs
    anchors: keep the public key elsewhere, too. `down --purge` does not delete backups. Your own server (DATABASE_URL)
    can be backed up if its role has the REPLICATION privilege; restore that backup as you would any PostgreSQL base
    backup. Exit code 2: another backup is being written into DIR.

    \b
    Examples:
      interlock backup take
      interlock backup take /mnt/backups --json | jq -r .backup
    """
    chosen = settings()
    url = chosen.resolved_database_url().replace("postgresql+psycopg://", "postgresql://")
    replicating = None if chosen.database_url else endpoints.load(home_of(chosen)).superuser_url
    place = (directory or chosen.backups_directory).resolve()
    with ended_by(), bar("copying", as_json) as shown:
        place, made = back_up(url, place, chosen.signing_directory, on(shown), replicating=replicating)
    size = sum(made.sizes.values())
    if not print_json({"backup": str(place), "bytes": size, **asdict(made)}, as_json):
        say(f"{place}")
        message = f"{number_of(made.events_after, 'event')}, {size / 1e6:,.1f} MB, as of {made.taken_at}"
        say(f"{message}; put it back with `{offered('restore', place)}`")


@app.command("list")
def list_(directory: Directory = None, as_json: AsJson = False) -> None:
    """List backups, newest first: age, size, and whether anything is wrong with them.

    Manifest, signature and the sizes of files are checked, not their content: `interlock backup drill` does that.

    \b
    Examples:
      interlock backup list
      interlock backup list /mnt/backups --json | jq -r '.[] | select(.problem == null) | .backup'
    """
    chosen = settings()
    place, now = (directory or chosen.backups_directory).resolve(), datetime.now(UTC)
    keys = signing_keys.trusted_keys(chosen.signing_directory)
    found = [_described(each, now) for each in kept_backups.newest_first(place, keys)]
    if print_json(found, as_json):
        return
    rows = [
        row
        | {
            "backup": Path(row["backup"]).name,
            "age": "" if row["age_seconds"] is None else span(max(row["age_seconds"], 0.0)),
            "MB": "" if row["bytes"] is None else f"{row['bytes'] / 1e6:,.1f}",
            "state": row["problem"] or "ok",
        }
        for row in found
    ]
    print_table(f"{number_of(len(found), 'backup')} in {place}", rows, ("backup", "age", "MB", "events", "state"))


@app.command()
def drill(
    backup: Annotated[
        str | None,
        typer.Argument(metavar="BACKUP", help="A backup, by its path or its name.", show_default="the newest"),
    ] = None,
    within: Annotated[
        Path | None,
        typer.Option(
            "--in",
            metavar="DIR",
            exists=True,
            file_okay=False,
            help="Where to restore it, for a while. [INTERLOCK_HOME]",
        ),
    ] = None,
    trust: Annotated[
        list[Path] | None, typer.Option(exists=True, metavar="FILE", help="A public key to trust (*.pub).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Prove that a backup can be restored: restore it beside what is running, verify its history, remove it again.

    The temporary installation has its own PostgreSQL, on a free port, in DIR/interlock-drill. It needs twice the space
    of the database, so that the running one keeps enough. Nothing outside DIR is changed.

    Exit code 0: it was restored, has all its events, and they verify. 1: it was changed, cut or cannot be restored, or
    history does not verify. 2: there is no backup, or another drill is running.

    \b
    Examples:
      interlock backup drill
      interlock backup drill interlock-20261121T220000000000Z --in /mnt/scratch
      interlock backup drill --json | jq '{ok, events, restore_seconds}'
    """
    chosen = settings()
    keys = signing_keys.trusted_keys(chosen.signing_directory, *(trust or ()))
    path, place = _chosen_backup(chosen, backup, keys), (within or chosen.home).resolve()
    if not place.is_dir():
        raise BadInput(f"{place} does not exist: give --in DIR, where the backup is restored for a while")
    with ended_by(), bar("checking", as_json) as shown:
        found = drilled(chosen, path, place, keys, stages(shown))
    if not print_json({"ok": found.ok, **asdict(found)}, as_json):
        _print_drill(found)
    raise typer.Exit(0 if found.ok else FAILED)


def _chosen_backup(chosen: Settings, named: str | None, keys: TrustedKeys) -> Path:
    place = chosen.backups_directory
    if named is None:
        newest = next((each for each in kept_backups.newest_first(place, keys) if not each.foreign), None)
        if newest is None:
            raise BadInput(f"there is no backup by this installation in {place}: `interlock backup take` takes one")
        return newest.path
    for path in (Path(named), place / named):
        if path.is_dir():
            return path.resolve()
    raise BadInput(f"there is no backup {named}, nor one of that name in {place}: `interlock backup list`")


def _print_drill(found: Drilled) -> None:
    if found.problem is not None:
        say(("the drill failed", "bold red"), f": {found.problem}")
    if found.events is None:
        return
    say(f"{found.backup}, {span(max(found.age_seconds or 0.0, 0.0))} old")
    verdict = (number_of(len(found.problems), "problem"), "bold red") if found.problems else ("verified", "green")
    say(verdict, f": {number_of(found.instances or 0, 'instance')}, {number_of(found.events, 'event')}")
    for problem in found.problems[:NAMED]:
        say(f"  {problem.instance} {problem.seq or ''}: {problem.message}")
    times = f"restored in {found.restore_seconds:.1f} s, started in {found.start_seconds:.1f} s"
    say(f"{times}, verified in {found.verify_seconds:.1f} s; everything was removed again")


def _described(each: KeptBackup, now: datetime) -> dict[str, Any]:
    found, taken_at = each.manifest, each.taken_at
    return {
        "backup": str(each.path),
        "taken_at": taken_at,
        "age_seconds": taken_at and (now - taken_at).total_seconds(),
        "bytes": found and sum(found.sizes.values()),
        "events": found and found.events_before,
        "problem": each.problem,
    }
