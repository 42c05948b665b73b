"""`interlock definitions migrate`: move live instances from one version of a machine to another."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from interlock.cli.lib.options import By
from interlock.cli.lib.output import REFUSED, AsJson, errors, print_json, print_table, say
from interlock.db.connection import transaction
from interlock.db.core import instances
from interlock.workers.client.client import Client
from interlock.workers.definitions.instance_migration import Migrated, Migration, Unmigrated, migrate
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput
from interlock.workflows.output.suggestions import offered

MIGRATE_HELP = """\
Move live instances to another version of their machine. Each is moved in its own commit, as an event in its history.

Instances that do not fit the new version stay as they are and are listed with every reason (exit code 2). After an
interruption, run the same command again.

\b
Examples:
  interlock definitions migrate task --from 1.0.0 --to 1.1.0 --reason "cancel from everywhere" --dry-run
  interlock definitions migrate workstream --from 1.1.0 --to 1.0.0 --map paused=executing --reason "back again" --by ann
"""
NAMED = 1_000  # rows of the table of instances that stay
FEW = 10  # up to this many rows need no summary of their reasons
PARTICULAR = re.compile(r" \S{36} ")  # an id of a request or an instance


def migrate_(
    type_: Annotated[str, typer.Argument(metavar="TYPE", help="A workflow type.")],
    old: Annotated[str, typer.Option("--from", help="The instances' current version.")],
    new: Annotated[str, typer.Option("--to", help="The version to move them to.")],
    reason: Annotated[str, typer.Option(help="Why; stored in each event.")],
    by: By,
    renamed: Annotated[
        list[str] | None, typer.Option("--map", metavar="OLD=NEW", help="A state that NEW lacks, and its replacement.")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(metavar="REF", help="Only these instances.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Try each, change nothing, list those that would stay.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Migrate instances."""
    with Client() as client:
        with transaction(client.runtime.database) as connection:
            ids = [instances.find(connection, ref, client.project)["id"] for ref in only] if only else None
        order = Migration(type_, old, new, by, reason, _mapping(renamed or []), ids, dry_run)
        done = _watched(client.runtime, order, quiet=as_json)
    _print_result(order, done, as_json=as_json)
    raise typer.Exit(REFUSED if done.stays else 0)


def _watched(runtime: Runtime, order: Migration, *, quiet: bool) -> Migrated:
    columns = (TextColumn("migrating"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True, disable=quiet or not errors.is_terminal) as progress:
        bar = progress.add_task("migrate", total=None)
        seen = [0, 0]

        def on_progress(looked: int, total: int) -> None:
            seen[:] = looked, total
            progress.update(bar, completed=looked, total=total)

        try:
            return migrate(runtime.database, runtime.catalogue, order, on_progress)
        except KeyboardInterrupt:
            say(
                "interrupted after {:,} of {:,}: what moved has moved; the same command goes on".format(*seen),
                to=errors,
            )
            raise


def _mapping(options: list[str]) -> dict[str, str]:
    pairs = [each.partition("=") for each in options]
    if wrong := ["".join(pair) for pair in pairs if not (pair[0] and pair[2])]:
        raise BadInput(f"--map {wrong[0]!r} is not OLD=NEW, like paused=executing")
    return {old: new for old, _, new in pairs}


def _print_result(order: Migration, done: Migrated, *, as_json: bool) -> None:
    if print_json({"dry_run": order.dry_run, "found": done.found, "moved": done.moved, "stays": done.stays}, as_json):
        return
    verb = "would move" if order.dry_run else "moved"
    way = f"{order.type} {order.old} → {order.new}"
    say(f"{done.moved:,} of {done.found:,} {verb}: {way}")
    if order.only and (others := len(set(order.only)) - done.found):
        message = f"{others:,} of those named do not use {order.type} {order.old}: {offered('show', 'REF')}"
        say(message)
    elif not done.found:
        say(f"no live instance uses {order.type} {order.old}")
    if done.stays:
        _print_unmigrated(done.stays)


def _print_unmigrated(stays: Sequence[Unmigrated]) -> None:
    rows = [asdict(each) | {"why": "; ".join(each.why)} for each in stays[:NAMED]]
    print_table(f"{len(stays):,} stay as they are", rows, ("entity_id", "state", "why"))
    if len(stays) > NAMED:
        say(f"… and {len(stays) - NAMED:,} more: --json names all. Of all that stay:")
    if len(stays) > FEW:
        whys = Counter(PARTICULAR.sub(" … ", why) for each in stays for why in each.why)
        for why, count in whys.most_common(FEW):
            say(f"  {count:,}: {why}")
