"""`interlock definitions new | check`, and `graph` of a file: machines that are being written."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from interlock.cli.lib.output import REFUSED, AsJson, errors, print_json, say
from interlock.workers.definitions import file, release_locks, scaffold
from interlock.workers.runtime import Runtime
from interlock.workers.settings import settings
from interlock.workflows.definition import Definition
from interlock.workflows.faults import Fault
from interlock.workflows.output.counts import number_of


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the machine: lower-case letters, digits and _.")],
    as_json: AsJson = False,
) -> None:
    """Write a commented machine and its test into the current folder: NAME.py and test_NAME.py. They work as they are;
    change them step by step. No file is overwritten.

    \b
    Examples:
      interlock definitions new deploy
      interlock definitions check deploy.py
      interlock definitions graph deploy.py
    """
    written = scaffold.write(name, Path.cwd())
    then = scaffold.next_steps(name)
    if not print_json(
        {"files": [each.name for each in written], "next": then, "note": scaffold.AFTER_A_CHANGE}, as_json
    ):
        say(("written", "green"), f" {' and '.join(each.name for each in written)}")
        for each in then:
            say(f"  {each}")
        say(scaffold.AFTER_A_CHANGE)


def check(
    path: Annotated[
        str | None, typer.Argument(metavar="[FILE]", help="Only this Python file, which need not be registered.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check every definition: all states reachable, no dead ends, terminal states final, deadlines that can fire; and
    that none was changed since its release (`interlock definitions lock`). With FILE, check only the definitions in it,
    also while it is being written: each fault with file, line and what to do. Exit code 2: one was changed; or, in
    FILE, something is wrong.

    \b
    Examples:
      interlock definitions check
      interlock definitions check deploy.py
    """
    raise typer.Exit(_check_all(as_json) if path is None else _check_file(Path(path), as_json))


def _check_all(as_json: bool) -> int:
    known = Runtime(settings()).catalogue  # raises an error that names every fault
    changed = release_locks.complaints(settings().definitions)
    listed = {"definitions": len(list(known)), "warnings": known.warnings, "changed": changed}
    if not print_json({"ok": not changed} | listed, as_json):
        _warn(known.warnings)
        for each in changed:
            say(("changed", "bold red"), f" {each}")
        if not changed:
            say(("ok", "green"), f" {number_of(len(list(known)), 'definition')}")
    return REFUSED if changed else 0


def _check_file(path: Path, as_json: bool) -> int:
    draft = file.read(path, settings().effect_queues)
    names = [f"{each.type} {each.version}" for each in draft.definitions]
    faults = [_row(each) for each in draft.faults]
    found = {"ok": not faults, "definitions": names, "faults": faults, "warnings": list(draft.warnings)}
    if not print_json(found, as_json):
        _tell(draft.faults)
        _warn(draft.warnings)
        if not faults:
            say(("ok", "green"), f" {', '.join(names) or 'effects only'}")
    return REFUSED if faults else 0


def is_file(name: str) -> bool:
    """Whether an argument names a Python file rather than a type."""
    return name.endswith(".py") or "/" in name


def drawn(name: str, type_: str, version: str) -> Definition:
    """The definition of a file that is to be drawn; its faults are printed on standard error.

    Raises:
        InvalidDefinition: there is none that can be drawn.
        UnknownWorkflow, BadInput: as `Draft.one` and `file.read`.
    """
    draft = file.read(Path(name), settings().effect_queues)
    definition = draft.one(type_, version)
    _tell(draft.faults, to=errors)
    return definition


def _row(fault: Fault) -> dict[str, Any]:
    where, _, line = _shown(fault.place).rpartition(":")
    return {"file": where or None, "line": int(line) if line.isdigit() else None, "message": fault.message}


def _tell(faults: Iterable[Fault], **to: Any) -> None:
    for each in faults:
        say((_shown(each.place) or "?", "bold red"), f": {each.message}", **to)


def _warn(warnings: Iterable[str]) -> None:
    for each in warnings:
        say(("warning", "yellow"), f" {each}")


def _shown(place: str) -> str:
    """A place, relative to the current folder if it is in it."""
    return place.removeprefix(f"{Path.cwd()}/")
