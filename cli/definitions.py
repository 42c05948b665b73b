"""`interlock definitions`: list, show, check, graph and export the machines."""

import json
from pathlib import Path
from typing import Annotated

import typer

from cli.output import AsJson, console, print_json, print_table
from workers.settings import settings
from workflows.catalogue import Catalogue, catalogue
from workflows.definition import Definition
from workflows.errors import BadInput
from workflows.export import checksum, mermaid, public, recorded

app = typer.Typer(help="The machines: list, show, check, draw and export them. Needs no server.", no_args_is_help=True)

TYPE = Annotated[str, typer.Argument(metavar="TYPE", help="A workflow type; `interlock definitions list` names them.")]
VERSION = Annotated[str, typer.Option("--version", help="Its version; the newest unless given.")]


def _known() -> Catalogue:
    return catalogue(settings().definitions)


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List every definition with its size and checksum."""
    rows = [
        {
            "type": definition.type,
            "version": definition.version,
            "states": len(definition.states),
            "transitions": sum(len(move.sources) for move in definition.transitions),
            "checksum": checksum(definition),
            "summary": definition.summary,
        }
        for definition in _known()
    ]
    if as_json:
        print_json(rows)
    else:
        shown = [row | {"checksum": str(row["checksum"])[:12]} for row in rows]
        print_table("definitions", shown, ("type", "version", "states", "transitions", "checksum", "summary"))


@app.command()
def show(type_: TYPE, version: VERSION = "", as_json: AsJson = False) -> None:
    """Show a definition: states, moves, guards, approvals, deadlines.

    Example: interlock definitions show pr_review
    """
    definition = _known().get(type_, version or None)
    if as_json:
        print_json(recorded(definition) | {"checksum": checksum(definition)})
        return
    console.print(f"[bold]{definition.type} {definition.version}[/]  {definition.summary}")
    console.print(f"begins in {definition.initial}, ends in {', '.join(sorted(definition.terminal))}")
    for state, deadline in definition.deadlines.items():
        console.print(f"{state} is left by {deadline.trigger} after {deadline.seconds / 3600:g} h")
    print_table("moves", _moves(definition), ("trigger", "source", "dest", "guards", "approval", "then", "severity"))


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
    """Check every definition: reachable states, no dead ends, terminal states final, deadlines that can fire."""
    known = _known()  # refuses with every fault named
    if as_json:
        print_json({"ok": True, "definitions": len(list(known)), "warnings": known.warnings})
        return
    for warning in known.warnings:
        console.print(f"[yellow]warning[/] {warning}")
    console.print(f"[green]ok[/] {len(list(known))} definitions")


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
    """Export every definition as JSON: type, version, initial, states, transitions (one entry per source)."""
    exported = [public(definition) for definition in _known()]
    if output is None:
        print_json(exported)
        return
    try:
        output.write_text(json.dumps(exported, indent=2) + "\n")
    except OSError as error:
        raise BadInput(f"{output} cannot be written: {error}") from error
