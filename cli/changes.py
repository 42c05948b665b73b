"""`interlock definitions diff | lock | migrate`: change machines, and move what lives under them."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from cli.output import REFUSED, AsJson, console, errors, print_json, print_table
from db import instances
from db.connect import transaction
from workers import forms, released
from workers.client import Client
from workers.forms import Difference
from workers.migrating import Migrated, Order, migrate
from workers.operators import os_user
from workers.settings import settings
from workflows.catalogue import catalogue
from workflows.errors import BadInput

DIFF_HELP = """Compare versions of machines: what was added, removed and changed, and the version number that asks for.

MAJOR: a state more or less, a transition less, a field that must now be there. MINOR: a transition more, another guard,
deadline, effect or approval. PATCH: words and order. Exit code 2: the number says too little.

\b
Examples:
  interlock definitions diff task 1.0.0 1.1.0
  interlock definitions diff --recorded                   the code against what the database has recorded
  interlock definitions diff story --file exported.json   the code against a file of an earlier release
"""
LOCK_HELP = """\
Add new versions to the lock: they are released, and never change. Exit code 2: one was changed, or misnumbered.

The shipped machines have theirs in workflows/definitions.lock, a module of your own has MODULE.lock beside it. Commit
them; `interlock definitions check` compares.

\b
Example:
  interlock definitions lock
"""
MIGRATE_HELP = """\
Move live instances to another version of their machine, each in a commit of its own, as an event in its history.

What does not fit stays as it is and is named with all that stands in its way (exit code 2). Interrupted, run it again.

\b
Examples:
  interlock definitions migrate task --from 1.0.0 --to 1.1.0 --reason "cancel from everywhere" --dry-run
  interlock definitions migrate workstream --from 1.1.0 --to 1.0.0 --map paused=executing --reason "back again" --by ann
"""
NAMED = 1_000  # of those that stay, in a table

By = Annotated[str, typer.Option(help="The operator.", default_factory=os_user, show_default="the OS user")]


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("diff", help=DIFF_HELP)(diff)
    app.command("lock", help=LOCK_HELP)(lock)
    app.command("migrate", help=MIGRATE_HELP)(migrate_)


def diff(
    type_: Annotated[str | None, typer.Argument(metavar="[TYPE]", help="A workflow type.")] = None,
    old: Annotated[str | None, typer.Argument(metavar="[OLD]", help="Its older version.")] = None,
    new: Annotated[str | None, typer.Argument(metavar="[NEW]", help="Its newer version.")] = None,
    file: Annotated[Path | None, typer.Option(help="Take the older side from this file.")] = None,
    recorded: Annotated[bool, typer.Option("--recorded", help="Take it from the database.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compare."""
    found = _difference(type_, old, new, file, recorded)
    if as_json:
        print_json(_as_json(found))
    else:
        _print(found)
    raise typer.Exit(0 if found.right else REFUSED)


def _difference(type_: str | None, old: str | None, new: str | None, file: Path | None, recorded: bool) -> Difference:
    if (old is None) != (new is None) or (file and recorded):
        raise BadInput("say TYPE OLD NEW, or one of --file FILE and --recorded, or both of that")
    code = forms.of_code(catalogue(settings().definitions))
    older = code
    if file:
        older = forms.of_file(file)
    elif recorded:
        with Client() as client:
            older = forms.of_database(client.runtime.database)
    elif old is None:
        raise BadInput("compare with what? Say TYPE OLD NEW, --file FILE or --recorded")
    if type_ and old and new:
        return forms.two(older, code, type_, old, new)
    return forms.same(older, code, type_)


def _as_json(found: Difference) -> dict[str, Any]:
    told = [
        asdict(each) | {"part": each.part, "wanted": each.wanted, "right": each.right, "verdict": each.verdict}
        for each in found.comparisons
    ]
    return {"ok": found.right, "comparisons": told, "new": found.new, "gone": found.gone}


def _print(found: Difference) -> None:
    for each in found.comparisons:
        rows = [{"part": change.part, "change": change.says} for change in each.changes]
        print_table(f"{each.type} {each.old} → {each.new}", rows, ("part", "change"))
        if each.unseen:
            console.print(f"not compared, one side does not tell: {', '.join(each.unseen)}", style="dim")
        says = f"{each.part or 'no'} change: {each.new} is " + (
            "[green]right[/]" if each.right else f"[bold red]wrong[/], it must be [bold]{each.wanted}[/] or more"
        )
        console.print(says, soft_wrap=True)
    for title, names in (("only in the code", found.new), ("no longer in the code", found.gone)):
        if names:
            console.print(f"{title}: {', '.join(names)}", soft_wrap=True)
    if not (found.comparisons or found.new or found.gone):
        console.print("[green]no difference[/]")


def lock(
    forget: Annotated[bool, typer.Option("--forget", help="Take out versions that are no longer in the code.")] = False,
    as_json: AsJson = False,
) -> None:
    """Lock what is new."""
    done = released.lock(settings().definitions, forget=forget)
    if as_json:
        print_json({"locked": done})
    else:
        console.print(f"locked: {', '.join(done) or 'nothing new'}", highlight=False, soft_wrap=True)


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
        runtime = client.runtime
        with transaction(runtime.database) as connection:
            ids = [instances.find(connection, ref)["id"] for ref in only] if only else None
        order = Order(type_, old, new, by, reason, _mapping(renamed or []), ids, dry_run)
        columns = (TextColumn("migrating"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=errors, transient=True, disable=as_json or not errors.is_terminal) as progress:
            bar = progress.add_task("migrate", total=None)
            done = migrate(
                runtime.database,
                runtime.catalogue,
                order,
                lambda looked, total: progress.update(bar, completed=looked, total=total),
            )
    _tell(order, done, as_json=as_json)
    raise typer.Exit(REFUSED if done.stays else 0)


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
    console.print(f"{done.moved} of {done.found} {verb}: {escape(way)}", highlight=False)
    if done.stays:
        rows = [asdict(each) | {"why": "; ".join(each.why)} for each in done.stays[:NAMED]]
        print_table(f"{len(done.stays)} stay as they are", rows, ("entity_id", "state", "why"))
