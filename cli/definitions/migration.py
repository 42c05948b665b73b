"""`interlock definitions migrate`: move what lives under one version of a machine to another."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from cli.output import REFUSED, AsJson, console, errors, print_json, print_table
from db import instances
from db.connect import transaction
from workers.client import Client
from workers.migrating import Migrated, Order, Stays, migrate
from workers.operators import os_user
from workers.runtime import Runtime
from workflows.errors import BadInput

MIGRATE_HELP = """\
Move live instances to another version of their machine, each in a commit of its own, as an event in its history.

What does not fit stays as it is and is named with all that stands in its way (exit code 2). Interrupted, run it again.

\b
Examples:
  interlock definitions migrate task --from 1.0.0 --to 1.1.0 --reason "cancel from everywhere" --dry-run
  interlock definitions migrate workstream --from 1.1.0 --to 1.0.0 --map paused=executing --reason "back again" --by ann
"""
NAMED = 1_000  # of those that stay, in a table
FEW = 10  # a reader sees by themselves what so many have in common
PARTICULAR = re.compile(r" \S{36} ")  # a request's id, or an instance's

By = Annotated[str, typer.Option(help="The operator.", default_factory=os_user, show_default="the OS user")]


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("migrate", help=MIGRATE_HELP)(migrate_)


def migrate_(
    type_: Annotated[str, typer.Argument(metavar="TYPE", help="A workflow type.")],
    old: Annotated[str, typer.Option("--from", help="The version they are under.")],
    new: Annotated[str, typer.Option("--to", help="The version they are to be under.")],
    reason: Annotated[str, typer.Option(help="Why; kept in each event.")],
    by: By,
    renamed: Annotated[
        list[str] | None, typer.Option("--map", metavar="OLD=NEW", help="A state that is no more, and the one instead.")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(metavar="REF", help="Only these instances.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Try each, change nothing, name those that stay.")] = False,
    as_json: AsJson = False,
) -> None:
    """Migrate."""
    with Client() as client:
        with transaction(client.runtime.database) as connection:
            ids = [instances.find(connection, ref)["id"] for ref in only] if only else None
        order = Order(type_, old, new, by, reason, _mapping(renamed or []), ids, dry_run)
        done = _watched(client.runtime, order, quiet=as_json)
    _tell(order, done, as_json=as_json)
    raise typer.Exit(REFUSED if done.stays else 0)


def _watched(runtime: Runtime, order: Order, *, quiet: bool) -> Migrated:
    columns = (TextColumn("migrating"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True, disable=quiet or not errors.is_terminal) as progress:
        bar = progress.add_task("migrate", total=None)
        seen = [0, 0]

        def tell(looked: int, total: int) -> None:
            seen[:] = looked, total
            progress.update(bar, completed=looked, total=total)

        try:
            return migrate(runtime.database, runtime.catalogue, order, tell)
        except KeyboardInterrupt:
            errors.print("interrupted after {:,} of {:,}: what moved has moved; the same command goes on".format(*seen))
            raise


def _mapping(given: list[str]) -> dict[str, str]:
    pairs = [each.partition("=") for each in given]
    if wrong := ["".join(pair) for pair in pairs if not (pair[0] and pair[2])]:
        raise BadInput(f"--map {wrong[0]!r} is not OLD=NEW, like paused=executing")
    return {old: new for old, _, new in pairs}


def _tell(order: Order, done: Migrated, *, as_json: bool) -> None:
    if as_json:
        print_json({"dry_run": order.dry_run, "found": done.found, "moved": done.moved, "stays": done.stays})
        return
    verb = "would move" if order.dry_run else "moved"
    way = f"{order.type} {order.old} → {order.new}"
    console.print(f"{done.moved:,} of {done.found:,} {verb}: {escape(way)}", highlight=False)
    if order.only and (others := len(set(order.only)) - done.found):
        says = f"{others:,} of those named do not live under {order.type} {order.old}: `interlock show REF`"
        console.print(escape(says), highlight=False, soft_wrap=True)
    elif not done.found:
        console.print(f"nothing lives under {order.type} {order.old}", highlight=False, soft_wrap=True)
    if done.stays:
        _tell_stays(done.stays)


def _tell_stays(stays: Sequence[Stays]) -> None:
    rows = [asdict(each) | {"why": "; ".join(each.why)} for each in stays[:NAMED]]
    print_table(f"{len(stays):,} stay as they are", rows, ("entity_id", "state", "why"))
    if len(stays) > NAMED:
        console.print(f"… and {len(stays) - NAMED:,} more: --json names all. Of all that stay:", soft_wrap=True)
    if len(stays) > FEW:
        whys = Counter(PARTICULAR.sub(" … ", why) for each in stays for why in each.why)
        for why, count in whys.most_common(FEW):
            console.print(f"  {count:,}: {escape(why)}", highlight=False, soft_wrap=True)
