"""`interlock audit`: prove that history is complete and was not rewritten."""

from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from interlock.cli.audit import reports
from interlock.cli.audit.reading import counting, on_disk
from interlock.cli.lib.output import FAILED, AsJson, block, print_json, print_table, say
from interlock.db.audit import rebuild as rebuilding
from interlock.db.audit.snapshot import KEPT
from interlock.db.audit.verify import Verdict
from interlock.db.connection import transaction
from interlock.db.core import history
from interlock.workers.audit import anchor_copies, anchors, exports, log_validation, signed_checkpoints, signing_keys
from interlock.workers.audit.verify import verify as verified
from interlock.workers.client.client import Client
from interlock.workers.settings import settings
from interlock.workflows.catalogue import catalogue
from interlock.workflows.errors import BadInput
from interlock.workflows.output.counts import number_of
from interlock.workflows.output.escaping import shown

app = typer.Typer(help="Prove that history is complete and was not rewritten.", no_args_is_help=True)


@app.command()
def verify(
    places: Annotated[
        list[Path] | None,
        typer.Option("--anchors", exists=True, help="Check this directory of anchors too (repeatable)."),
    ] = None,
    trusted: Annotated[
        list[Path] | None, typer.Option("--trust", exists=True, help="Trust this public key (repeatable).")
    ] = None,
    every_line: Annotated[
        bool | None,
        typer.Option(
            "--journal/--no-journal",
            help="Compare every line of the journal and of exports, or none.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Recompute every hash chain, look for gaps, check moves against definitions and states against history.

    History is also compared with the signed anchors, in the database and on disk. The journal and exports are compared
    with history in both directions: what was written since the newest anchor, line by line.

    Exit code 0: history is unchanged. 1: problems were found; each finding names the instance and the event.

    \b
    Examples:
      interlock audit verify
      interlock audit verify --journal                                     every line of the journal and of exports
      interlock audit verify --anchors /mnt/copy/audit --trust ann.pub     also check copies of anchors
    """
    with Client() as client, on_disk():
        with transaction(client.runtime.database) as connection:
            total = history.count(connection)
        with counting("verifying", as_json, total) as count:
            verdict = verified(client.runtime, count, places=places or (), trusted=trusted or (), every_line=every_line)
    _print_result(verdict, as_json)
    raise typer.Exit(0 if verdict.ok else FAILED)


def _print_result(verdict: Verdict, as_json: bool) -> None:
    counts = {"instances": verdict.instances, "transitions": verdict.transitions, "anchors": verdict.anchors}
    more = {"problems": verdict.problems, "not_compared": verdict.not_compared}
    if print_json({"ok": verdict.ok, **counts, **more}, as_json):
        return
    message = ("ok", "green") if verdict.ok else (number_of(verdict.found, "problem"), "bold red")
    read = ", ".join(
        (
            number_of(verdict.instances, "instance"),
            number_of(verdict.transitions, "event"),
            number_of(verdict.anchors, "anchor"),
        )
    )
    say(message, f": {read}")
    for each in verdict.not_compared:
        say(f"not compared: {each}")
    if not verdict.ok:
        print_table("problems", map(asdict, verdict.problems), ("instance", "seq", "message"))


@app.command()
def anchor(as_json: AsJson = False) -> None:
    """Sign the newest hash of every chain that changed since the last anchor, write it to a file, and copy it to where
    INTERLOCK_ANCHOR_DIRECTORIES and INTERLOCK_ANCHOR_COMMANDS say.

    A sweep does this hourly, and tries copies that failed again each minute.

    \b
    Example:
      INTERLOCK_ANCHOR_DIRECTORIES=/mnt/other/anchors interlock audit anchor
    """
    with Client() as client, on_disk():
        try:
            heads = anchors.anchor(client.runtime)
        finally:
            anchor_copies.copy_all(client.runtime)
        with transaction(client.runtime.database) as connection:
            copies = anchor_copies.states(connection, client.runtime.settings)
        place = anchors.directory(client.runtime)
        last = max(map(str, anchors.filed(place)), default=None)
    if as_json:
        print_json({"heads": heads, "file": last, "copies": [each._asdict() for each in copies]})
        return
    say(f"anchored {number_of(heads, 'instance')}: {last}" if heads else "nothing has changed since the last anchor")
    for each in copies:
        fault = f": {each.behind} anchors are missing: {each.error or 'not copied yet'}"
        say(f"  copied to {each.destination}, up to anchor {each.number}{fault if each.behind or each.error else ''}")


@app.command()
def checkpoint(
    old: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER", min=0, help="Ask a witness that cosigned this anchor last (0: none) to cosign the newest."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the newest anchor's signed checkpoint (c2sp.org/tlog-checkpoint), or a request for a witness's cosignature.

    The request (c2sp.org/tlog-witness) proves that all anchors before are still the same. A witness that knows the key
    (`interlock audit key --note`) answers with a line for the end of the checkpoint.

    \b
    Examples:
      interlock audit checkpoint
      interlock audit checkpoint --old 41 | curl --data-binary @- https://witness.example/add-checkpoint
    """
    with Client() as client:
        text = anchors.checkpoint(client.runtime, old)
    if not print_json({"checkpoint": text} if old is None else {"request": text}, as_json):
        block(text.removesuffix("\n") if text else "nothing has been anchored yet")


@app.command()
def key(
    new: Annotated[bool, typer.Option("--new", help="Make a new key; there must be none yet.")] = False,
    note: Annotated[
        bool, typer.Option("--note", help="In the form that tools for C2SP signed notes and witnesses take.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the public key that verifies anchors. Keep a copy where no database administrator can write.

    \b
    Examples:
      interlock audit key > anchor.pub
      interlock audit key --note                       NAME+ID+KEY
      mv $INTERLOCK_HOME/keys/anchor.key /elsewhere && interlock audit key --new
    """
    with Client() as client, on_disk():
        place = client.runtime.settings.signing_directory
        if new:
            signing_keys.make(place)
        signer = signing_keys.signer(place, may_make=False)
        file = place / f"{signer.name}.pub"
        text = file.read_text()
    vkey = signed_checkpoints.verifier_key(signed_checkpoints.PREFIX + signer.name, signer.key.public_key())
    if not print_json({"key": signer.name, "public": text, "note": vkey, "file": file}, as_json):
        block(vkey if note else text.strip())


@app.command()
def export(as_json: AsJson = False) -> None:
    """Export the events since the last export: compressed events and a signed manifest with checksums.

    A sweep does this daily. Directories and files are read-only and never overwritten.

    \b
    Example:
      interlock audit export && rsync -a "$INTERLOCK_HOME/audit/" elsewhere:audit/
    """
    with Client() as client, on_disk(), counting("exporting", as_json) as count:
        done = exports.export_all(client.runtime, count)
    if print_json([{"directory": each.directory, "events": each.events} for each in done], as_json):
        return
    for each in done:
        say(f"exported {number_of(each.events, 'event')}: {each.directory}")
    if not done:
        say("nothing has happened since the last export")


@app.command()
def validate(
    paths: Annotated[list[Path], typer.Argument(metavar="FILE…", exists=True, help="Event logs in order, or exports.")],
    trusted: Annotated[
        list[Path] | None, typer.Option("--trust", exists=True, help="Trust this public key (repeatable).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check an event log, in the current schema or an older one. Needs no server.

    Checks each line's schema; that each move is legal under some version of its definition; that each entity's events
    follow each other, in time as well; invariants; and hashes, if the log has them. Findings are printed as FILE:LINE
    with the problem and the expected value. A directory is read as an export: its signature and checksums are checked
    first. Exit code 1: there are findings.

    \b
    Examples:
      interlock audit validate .state/transitions.jsonl
      interlock audit validate .state/transitions.*.jsonl .state/transitions.jsonl     parts, in order
      interlock audit validate audit/exports/export-000001.2026-11-21 --trust anchor.pub
    """
    chosen = settings()
    keys = signing_keys.trusted_keys(chosen.signing_directory, *(trusted or ()))
    events, found, problems = 0, 0, []
    try:
        with counting("reading", as_json) as count:
            sealed = log_validation.seals((path for path in paths if path.is_dir()), keys)
            for each in chain(sealed, log_validation.validate(paths, catalogue(chosen.definitions), count)):
                if isinstance(each, int):
                    events = each
                    continue
                found += 1
                if not as_json:
                    say(f"{each.file}:{each.line}: {each.message}")
                elif found <= KEPT:
                    problems.append(each._asdict())
    except OSError as error:
        raise BadInput(f"{shown(error.filename or paths[0])} cannot be read: {error.strerror or error}") from error
    if not print_json({"ok": found == 0, "events": events, "found": found, "problems": problems}, as_json):
        message = (number_of(found, "finding"), "bold red") if found else ("ok", "green")
        say(message, f": {number_of(events, 'event')}")
    raise typer.Exit(FAILED if found else 0)


@app.command()
def rebuild(as_json: AsJson = False) -> None:
    """Replay all history into a scratch schema, with the same database triggers, and compare the result
    with the current tables.

    Compares instances and the columns of runs, workstreams, tasks, workers, patches, gates, breakers and jobs that
    follow from history. The scratch schema is dropped at the end. Nothing else changes, and no other work is blocked.
    Exit code 1: something differs.

    \b
    Example:
      interlock audit rebuild --json
    """
    with Client() as client, counting("replaying", as_json) as count:
        done = rebuilding.rebuild(client.runtime.owned, count)
    if not print_json({"ok": done.ok, **asdict(done)}, as_json):
        message = (number_of(done.found, "difference"), "bold red") if done.found else ("ok", "green")
        replayed = f"{number_of(done.transitions, 'event')} of {number_of(done.instances, 'instance')} replayed"
        say(message, f": {replayed}, {number_of(done.rows, 'row')} compared")
        if done.found:
            print_table("differences", map(asdict, done.differences), ("table", "key", "column", "current", "rebuilt"))
    raise typer.Exit(0 if done.ok else FAILED)


app.command("report")(reports.report)
app.command("verify-report")(reports.verify_report)
