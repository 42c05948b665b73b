"""`interlock definitions diff | lock`: compare versions of machines, and record released versions."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from interlock.cli.lib.output import REFUSED, AsJson, print_json, print_table, say
from interlock.workers.client.client import Client
from interlock.workers.definitions import release_locks, sources
from interlock.workers.definitions.sources import SourceDifference
from interlock.workers.settings import settings
from interlock.workflows.catalogue import catalogue
from interlock.workflows.errors import BadInput


def diff(
    type_: Annotated[str | None, typer.Argument(metavar="[TYPE]", help="A workflow type.")] = None,
    old: Annotated[str | None, typer.Argument(metavar="[OLD]", help="Its older version.")] = None,
    new: Annotated[str | None, typer.Argument(metavar="[NEW]", help="Its newer version.")] = None,
    file: Annotated[Path | None, typer.Option(help="Read the older side from this file.")] = None,
    recorded: Annotated[bool, typer.Option("--recorded", help="Read the older side from the database.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compare versions of machines: what was added, removed or changed, and the version number that requires.

    MAJOR: a state added or removed, a transition removed, a right to fire one taken away, a newly required field, a
    field of a context's or data's model removed or changed.
    MINOR: a transition or a right added; a guard, deadline, effect or approval changed. PATCH: texts and order.
    Exit code 2: the new version number is too low.

    \b
    Examples:
      interlock definitions diff task 1.0.0 1.1.0
      interlock definitions diff --recorded                   compare the code with the database
        interlock definitions diff story --file exported.json   compare the code with a file of an earlier release
    """
    found = _difference(type_, old, new, file, recorded)
    if not print_json(_as_json(found), as_json):
        _print(found)
    raise typer.Exit(0 if found.right else REFUSED)


def _difference(
    type_: str | None, old: str | None, new: str | None, file: Path | None, recorded: bool
) -> SourceDifference:
    if (old is None) != (new is None) or (file and recorded):
        raise BadInput("give TYPE OLD NEW, and at most one of --file FILE and --recorded")
    code = sources.of_code(catalogue(settings().definitions))
    older = code
    if file:
        older = sources.of_file(file)
    elif recorded:
        with Client() as client:
            older = sources.of_database(client.runtime.database)
    elif old is None:
        raise BadInput("nothing to compare with: give TYPE OLD NEW, --file FILE or --recorded")
    if type_ and old and new:
        return sources.two(older, code, type_, old, new)
    return sources.same(older, code, type_)


def _as_json(found: SourceDifference) -> dict[str, Any]:
    comparisons = [
        asdict(each) | {"part": each.part, "wanted": each.wanted, "right": each.right, "verdict": each.verdict}
        for each in found.comparisons
    ]
    return {"ok": found.right, "comparisons": comparisons, "new": found.new, "gone": found.gone}


def _print(found: SourceDifference) -> None:
    for each in found.comparisons:
        rows = [{"part": change.part, "change": change.message} for change in each.changes]
        print_table(f"{each.type} {each.old} → {each.new}", rows, ("part", "change"))
        if each.unseen:
            say((f"not compared, as one side lacks them: {', '.join(each.unseen)}", "dim"))
        judged = [("right", "green")] if each.right else [("wrong", "bold red"), f", it must be {each.wanted} or more"]
        say(f"{each.part or 'no'} change: {each.new} is ", *judged)
    for title, names in (("only in the code", found.new), ("no longer in the code", found.gone)):
        if names:
            say(f"{title}: {', '.join(names)}")
    if not (found.comparisons or found.new or found.gone):
        say(("no difference", "green"))


def lock(
    forget: Annotated[bool, typer.Option("--forget", help="Remove versions that are no longer in the code.")] = False,
    as_json: AsJson = False,
) -> None:
    """Add new versions to the lock file: they are then released and must never change.

    The shipped machines are locked in workflows/definitions.lock, your own module's in MODULE.lock beside it. Commit
    these files; `interlock definitions check` compares them with the code. Exit code 2: a released version was changed,
    or a new version's number is too low.

    \b
    Example:
      interlock definitions lock
    """
    done = release_locks.lock(settings().definitions, forget=forget)
    if not print_json({"locked": done}, as_json):
        say(f"locked: {', '.join(done) or 'nothing new'}")
