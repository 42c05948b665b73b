"""`interlock audit`: prove that nothing was rewritten."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from cli.output import FAILED, AsJson, console, errors, print_json, print_table
from db import history
from db import rebuild as rebuilding
from db.audit import KEPT_PROBLEMS, Verdict
from db.connect import transaction
from workers.auditing import anchors, exports, keys, logs
from workers.auditing.verifying import verify as verified
from workers.client import Client
from workers.settings import settings
from workflows.catalogue import catalogue
from workflows.errors import BadInput, InterlockError

app = typer.Typer(help="Prove that history is whole and was not rewritten.", no_args_is_help=True)

VERIFY_HELP = """Recompute every hash chain, look for gaps, check moves against definitions and states against history.

And all of it against the signed anchors in the database and on file, and against what the journal holds since the
newest anchor.

Exit code 0: all as it was written. 1: not; each finding names the instance and the event.

\b
Examples:
  interlock audit verify
  interlock audit verify --journal                                     against every line of the journal
  interlock audit verify --anchors /mnt/copy/audit --trust ann.pub     and anchors that were copied elsewhere
"""
ANCHOR_HELP = """Sign the heads of all chains that changed since the last anchor, and file that; a sweep does it hourly.

\b
Example:
  interlock audit anchor && rsync -a "$INTERLOCK_HOME/audit/" elsewhere:audit/
"""
EXPORT_HELP = """File what has happened since the last export: packed events, and a signed manifest with checksums.

A sweep does so each day. Directories and files are read-only and never overwritten.

\b
Example:
  interlock audit export && rsync -a "$INTERLOCK_HOME/audit/" elsewhere:audit/
"""
VALIDATE_HELP = """Check an event log, of seed 001's schema, of the SSOT's or our own: no server is needed.

Each line's schema; that each move is legal under some version of its definition; that entities' events follow each
other, in time, too; invariants; hashes where there are any. Findings are FILE:LINE: what, and what was expected.
A directory is an export: its signature and checksums are checked first. Exit code 1: something was found.

\b
Examples:
  interlock audit validate .state/transitions.jsonl
  interlock audit validate .state/transitions.*.jsonl .state/transitions.jsonl     parts, in order
  interlock audit validate audit/exports/export-000001.2026-11-21 --trust anchor.pub
"""
REBUILD_HELP = """Replay all history into a scratch schema, by the same triggers, and compare that with what is there.

Instances, and what history tells of runs, workstreams, tasks, workers, patches, gates, breakers and jobs. The scratch
schema is dropped at the end; nothing else changes, and nobody waits. Exit code 1: something differs.

\b
Example:
  interlock audit rebuild --json
"""
KEY_HELP = """Show the public half of the key that signs anchors, to be kept where no DBA can write.

\b
Examples:
  interlock audit key > anchor.pub
  mv $INTERLOCK_HOME/keys/anchor.key /elsewhere && interlock audit key --new
"""


@app.command(help=VERIFY_HELP)
def verify(
    places: Annotated[
        list[Path] | None, typer.Option("--anchors", exists=True, help="Also this directory of anchors (repeatable).")
    ] = None,
    trusted: Annotated[
        list[Path] | None, typer.Option("--trust", exists=True, help="Believe this public key (repeatable).")
    ] = None,
    with_journal: Annotated[
        bool | None,
        typer.Option("--journal/--no-journal", help="Compare all of the journal, or none of it.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Verify history."""
    with Client() as client, _on_disk():
        with transaction(client.runtime.database) as connection:
            total = history.count(connection)
        columns = (
            SpinnerColumn(),
            TextColumn("verifying"),
            BarColumn(),
            TextColumn("{task.completed:,}/{task.total:,}"),
        )
        with Progress(*columns, console=errors, transient=True, disable=as_json or not errors.is_terminal) as progress:
            bar = progress.add_task("verify", total=total)
            verdict = verified(
                client.runtime,
                lambda read: progress.update(bar, completed=read),
                places=places or (),
                trusted=trusted or (),
                with_journal=with_journal,
            )
    _tell(verdict, as_json)
    raise typer.Exit(0 if verdict.ok else FAILED)


def _tell(verdict: Verdict, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "ok": verdict.ok,
                "instances": verdict.instances,
                "transitions": verdict.transitions,
                "anchors": verdict.anchors,
                "problems": verdict.problems,
            }
        )
        return
    says = "[green]ok[/]" if verdict.ok else f"[bold red]{verdict.found} problems[/]"
    read = f"{verdict.instances:,} instances, {verdict.transitions:,} events, {verdict.anchors:,} anchors"
    console.print(f"{says}: {read}")
    if not verdict.ok:
        rows = [{"instance": each.instance, "seq": each.seq, "says": visible(each.says)} for each in verdict.problems]
        print_table("problems", rows, ("instance", "seq", "says"))


@app.command(help=ANCHOR_HELP)
def anchor(as_json: AsJson = False) -> None:
    """Make an anchor."""
    with Client() as client, _on_disk():
        heads = anchors.anchor(client.runtime)
        place = anchors.directory(client.runtime)
        last = max(map(str, anchors.filed(place)), default=None)
    if as_json:
        print_json({"heads": heads, "file": last})
    elif heads:
        console.print(f"anchored {heads:,} instances: {last}", highlight=False, soft_wrap=True)
    else:
        console.print("nothing has changed since the last anchor")


@app.command(help=KEY_HELP)
def key(
    new: Annotated[bool, typer.Option("--new", help="Make one; there must be none.")] = False, as_json: AsJson = False
) -> None:
    """Show or make the signing key."""
    with Client() as client, _on_disk():
        place = client.runtime.settings.signing_directory
        if new:
            keys.make(place)
        name = keys.signer(place, may_make=False).name
        text = (place / f"{name}.pub").read_text()
    if as_json:
        print_json({"key": name, "public": text, "file": place / f"{name}.pub"})
    else:
        console.print(text.strip(), highlight=False, soft_wrap=True)


@app.command(help=EXPORT_HELP)
def export(as_json: AsJson = False) -> None:
    """Export history."""
    with Client() as client, _on_disk(), _counting("exporting", as_json) as count:
        done = exports.export_all(client.runtime, count)
    if as_json:
        print_json([{"directory": each.directory, "events": each.events} for each in done])
        return
    for each in done:
        console.print(f"exported {each.events:,} events: {each.directory}", highlight=False, soft_wrap=True)
    if not done:
        console.print("nothing has happened since the last export")


@app.command(help=VALIDATE_HELP)
def validate(
    paths: Annotated[
        list[Path], typer.Argument(metavar="FILE…", exists=True, help="Event logs that continue each other; exports.")
    ],
    trusted: Annotated[
        list[Path] | None, typer.Option("--trust", exists=True, help="Believe this public key (repeatable).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check event logs; needs no server."""
    chosen = settings()
    believed = keys.believed(chosen.signing_directory, *(trusted or ()))
    events, found, kept = 0, 0, []
    try:
        with _counting("reading", as_json) as count:
            sealed = logs.seals((path for path in paths if path.is_dir()), believed)
            for each in chain(sealed, logs.validate(paths, catalogue(chosen.definitions), count)):
                if isinstance(each, int):
                    events = each
                    continue
                found += 1
                if not as_json:
                    console.print(
                        visible(f"{each.file}:{each.line}: {each.says}"), highlight=False, markup=False, soft_wrap=True
                    )
                elif found <= KEPT_PROBLEMS:
                    kept.append(each._asdict())
    except OSError as error:
        raise BadInput(f"{error.filename or paths[0]} cannot be read: {error.strerror or error}") from error
    if as_json:
        print_json({"ok": found == 0, "events": events, "found": found, "problems": kept})
    else:
        says = f"[bold red]{found:,} findings[/]" if found else "[green]ok[/]"
        console.print(f"{says}: {events:,} events")
    raise typer.Exit(FAILED if found else 0)


@app.command(help=REBUILD_HELP)
def rebuild(as_json: AsJson = False) -> None:
    """Rebuild state and compare."""
    with Client() as client, _counting("replaying", as_json) as count:
        done = rebuilding.rebuild(client.runtime.database, count)
    if as_json:
        print_json({"ok": done.found == 0, **asdict(done)})
    else:
        says = f"[bold red]{done.found:,} differences[/]" if done.found else "[green]ok[/]"
        console.print(
            f"{says}: {done.transitions:,} events of {done.instances:,} instances replayed, {done.rows:,} rows compared"
        )
        if done.found:
            print_table("differences", map(asdict, done.differences), ("table", "key", "column", "current", "rebuilt"))
    raise typer.Exit(FAILED if done.found else 0)


def visible(text: str) -> str:
    """Text that somebody else wrote, for a terminal: what would steer it is spelled out."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


@contextmanager
def _on_disk() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InterlockError(
            f"{error.filename or settings().audit_directory} cannot be used: {error.strerror}. Look at its owner and"
            " mode, at the disk's room, at INTERLOCK_AUDIT, INTERLOCK_SIGNING and INTERLOCK_STATE; nothing is lost, ask"
            " again"
        ) from error


@contextmanager
def _counting(doing: str, as_json: bool) -> Iterator[Callable[[int], None]]:
    columns = (SpinnerColumn(), TextColumn(doing), TextColumn("{task.completed:,} events"))
    with Progress(*columns, console=errors, transient=True, disable=as_json or not errors.is_terminal) as progress:
        bar = progress.add_task(doing, total=None)
        yield lambda done: progress.update(bar, completed=done)
