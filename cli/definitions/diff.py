"""`interlock definitions diff | lock`: what differs between versions of machines, and what is released."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.output import REFUSED, AsJson, console, print_json, print_table
from workers import forms, released
from workers.client import Client
from workers.forms import Difference
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


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("diff", help=DIFF_HELP)(diff)
    app.command("lock", help=LOCK_HELP)(lock)


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
