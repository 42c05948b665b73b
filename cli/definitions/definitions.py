"""`interlock definitions`: list, show, check, graph and export the machines."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from cli import changes, deprecated, migration
from cli.output import REFUSED, AsJson, console, print_json, print_table
from workers import released
from workers.deprecations import says
from workers.settings import settings
from workflows.catalogue import Catalogue, catalogue
from workflows.definition import Definition
from workflows.errors import BadInput
from workflows.export import checksum, mermaid, public, recorded, spoken

app = typer.Typer(
    help="The machines: list, show, check, draw and export them, which needs no server; and change them.",
    no_args_is_help=True,
)
changes.register(app)
migration.register(app)
deprecated.register(app)

TYPE = Annotated[str, typer.Argument(metavar="TYPE", help="A workflow type; `interlock definitions list` names them.")]
VERSION = Annotated[str, typer.Option("--version", help="Its version; the newest unless given.")]


def _known() -> Catalogue:
    return catalogue(settings().definitions)


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List every definition with its size and checksum, and what of it is deprecated.

    \b
    Example:
      interlock definitions list --json | jq -r '.[].type'
    """
    marks = deprecated.known()
    rows = [
        {
            "type": definition.type,
            "version": definition.version,
            "states": len(definition.states),
            "transitions": sum(len(move.sources) for move in definition.transitions),
            "checksum": checksum(definition),
            "deprecated": _deprecated(definition, marks),
            "summary": definition.summary,
        }
        for definition in _known()
    ]
    if as_json:
        print_json(rows)
    else:
        shown = [row | {"checksum": str(row["checksum"])[:12], "deprecated": _count(row["deprecated"])} for row in rows]
        print_table(
            "definitions", shown, ("type", "version", "states", "transitions", "checksum", "deprecated", "summary")
        )


@app.command()
def show(type_: TYPE, version: VERSION = "", as_json: AsJson = False) -> None:
    """Show a definition: states, moves, guards, approvals, deadlines, and what contexts and events must say.

    Example: interlock definitions show pr_review
    """
    definition = _known().get(type_, version or None)
    warnings = _deprecated(definition, deprecated.known())
    if as_json:
        print_json(recorded(definition) | {"checksum": checksum(definition), "deprecated": warnings})
        return
    console.print(f"[bold]{definition.type} {definition.version}[/]  {definition.summary}")
    for warning in warnings:
        console.print(f"[yellow]deprecated[/] {escape(warning)}", soft_wrap=True)
    for line in _lines(definition):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    print_table("moves", _moves(definition), ("trigger", "source", "dest", "guards", "approval", "then", "severity"))
    if definition.fields:
        print_table("its context", _fields(definition), ("field", "required", "must_be"))


def _lines(definition: Definition) -> Iterator[str]:
    ends = [state for state in definition.states if state in definition.terminal]
    yield f"begins in {definition.initial}, " + (f"ends in {', '.join(ends)}" if ends else "never ends")
    for effect in definition.birth_effects:
        yield f"its birth asks for the effect {effect.name}"
    for state, deadline in definition.deadlines.items():
        own = f", or after what its {deadline.context_key} says" if deadline.context_key else ""
        yield f"{state} is left by {deadline.trigger} after {spoken(deadline)}{own}"
    for link in definition.links:
        yield f"{link.context_key} names a {link.type}: its {link.role}, which knows this one among its {link.inverse}"
    if definition.required_metadata:
        yield f"each event says: {', '.join(definition.required_metadata)}"


def _fields(definition: Definition) -> list[dict[str, str]]:
    return [
        {"field": each.name, "required": "yes" if each.required else "", "must_be": each.says}
        for each in definition.fields
    ]


def _count(told: object) -> str:
    return f"{len(told)} paths" if isinstance(told, list) and told else ""


def _deprecated(definition: Definition, known: Sequence[Mapping[str, Any]] | None) -> list[str]:
    """What is deprecated of a definition: as the database has it, or as the code marks it where there is none."""
    if known is None:
        return [f"state {state}: {why}" for state, why in definition.deprecated.items()] + [
            f"trigger {move.trigger}: {move.deprecated}" for move in definition.transitions if move.deprecated
        ]
    key = (definition.type, definition.version)
    return [says(row) for row in known if (row["type"], row["version"]) == key]


def _moves(definition: Definition) -> list[dict[str, str]]:
    return [
        {
            "trigger": move.trigger,
            "source": source,
            "dest": move.dest,
            "guards": ", ".join(guard.name for guard in move.when),
            "approval": f"quorum {move.approval.quorum}" if move.approval else "",
            "then": ", ".join(
                [f"{follow_up.role}.{follow_up.trigger}" for follow_up in move.then]
                + [f"effect {effect.name}" for effect in move.effects]
            ),
            "severity": move.severity,
        }
        for move in definition.transitions
        for source in move.sources
    ]


@app.command()
def check(as_json: AsJson = False) -> None:
    """Check every definition: reachable states, no dead ends, terminal states final, deadlines that can fire; and that
    none was changed since it was released (`interlock definitions lock`). Exit code 2: one was.

    \b
    Example:
      interlock definitions check
    """
    known = _known()  # refuses with every fault named
    changed = released.complaints(settings().definitions)
    if as_json:
        listed = {"definitions": len(list(known)), "warnings": known.warnings, "changed": changed}
        print_json({"ok": not changed} | listed)
    else:
        for warning in known.warnings:
            console.print(f"[yellow]warning[/] {escape(warning)}", soft_wrap=True)
        for each in changed:
            console.print(f"[bold red]changed[/] {escape(each)}", soft_wrap=True)
        if not changed:
            console.print(f"[green]ok[/] {len(list(known))} definitions")
    raise typer.Exit(REFUSED if changed else 0)


@app.command()
def graph(type_: TYPE, version: VERSION = "", as_json: AsJson = False) -> None:
    """Print a definition as a Mermaid state diagram.

    Example: interlock definitions graph story > story.mmd
    """
    drawn = mermaid(_known().get(type_, version or None))
    if as_json:
        print_json({"mermaid": drawn})
    else:
        console.print(drawn, markup=False, highlight=False, soft_wrap=True)


@app.command()
def export(
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to this file instead.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON is the only form; accepted for symmetry.")] = True,
) -> None:
    """Export every definition as JSON: type, version, initial, states, transitions (one entry per source).

    \b
    Example:
      interlock definitions export --output definitions.json
    """
    exported = [public(definition) for definition in _known()]
    if output is None:
        print_json(exported)
        return
    try:
        output.write_text(json.dumps(exported, indent=2) + "\n")
    except OSError as error:
        raise BadInput(f"{output} cannot be written: {error}") from error
