"""`interlock definitions`: list, show, check, draw and export the state machines."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from interlock.cli.definitions import deprecated, diff, exporting, files, handover, migration, narrow, schema
from interlock.cli.lib import completing
from interlock.cli.lib.output import AsJson, block, print_json, print_table, say
from interlock.workers.engine.deprecations import deprecation_warning
from interlock.workers.runtime import Runtime
from interlock.workers.settings import settings
from interlock.workflows.catalogue import Catalogue
from interlock.workflows.definition import ApprovalPoint, Definition
from interlock.workflows.output.counts import number_of
from interlock.workflows.versioning.export import checksum, duration_text, mermaid, recorded

HELP = """State machines: begin, list, show, check, draw and export them (needs no server), and change versions.

\b
Examples:
  interlock definitions new deploy         a machine of your own, to begin with
  interlock definitions check deploy.py    each fault with its line
  interlock definitions show story         its states and moves, and who may make them
"""
app = typer.Typer(help=HELP, no_args_is_help=True)
app.command("diff")(diff.diff)
app.command("export")(exporting.export)
app.command("lock")(diff.lock)
app.command("schema")(schema.schema)
app.command("new")(files.new)
app.command("check")(files.check)
app.command("migrate", help=migration.MIGRATE_HELP)(migration.migrate_)
app.command("handover", help=handover.HELP)(handover.handover)
app.command("narrow")(narrow.narrow)
app.command("narrowed")(narrow.narrowed)
app.command("deprecate")(deprecated.deprecate)
app.command("deprecated")(deprecated.deprecated)
app.command("remove")(deprecated.remove)

TYPE = Annotated[
    str,
    typer.Argument(metavar="TYPE", help="As `interlock definitions list` has it.", autocompletion=completing.types),
]
VERSION = Annotated[str, typer.Option("--version", help="Its version; default: the newest.")]

MODEL_COLUMNS = ("of", "field", "required", "must_be", "means", "deprecated")

InProject = Annotated[str | None, typer.Option("--project", help="Show also which triggers this project restricts.")]


def _known() -> Catalogue:
    return Runtime(settings()).catalogue


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List every definition with its size, its checksum and its deprecated parts.

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
    if not print_json(rows, as_json):
        shown = [row | {"checksum": str(row["checksum"])[:12], "deprecated": _count(row["deprecated"])} for row in rows]
        print_table(
            "definitions", shown, ("type", "version", "states", "transitions", "checksum", "deprecated", "summary")
        )


@app.command()
def show(type_: TYPE, version: VERSION = "", project: InProject = None, as_json: AsJson = False) -> None:
    """Show a definition: states, moves, who may make them, guards, approvals, deadlines, and the fields of its context,
    its triggers' data and its events; with --project also which triggers that project restricts.

    Example: interlock definitions show pr_review
    """
    definition = _known().get(type_, version or None)
    warnings = _deprecated(definition, deprecated.known())
    left = {row["trigger"]: list(row["to"]) for row in narrow.known(project, type_)} if project else {}
    more = {"checksum": checksum(definition), "deprecated": warnings} | ({"narrowed": left} if project else {})
    if print_json(recorded(definition) | more, as_json):
        return
    say((f"{definition.type} {definition.version}", "bold"), f"  {definition.summary}")
    for warning in warnings:
        say(("deprecated", "yellow"), f" {warning}")
    for line in _lines(definition):
        say(line)
    for trigger, to in left.items():
        say(("narrowed", "yellow"), f" in project {project}: only {', '.join(to)} may fire {trigger}")
    print_table(
        "moves", _moves(definition), ("trigger", "source", "dest", "by", "guards", "approval", "then", "severity")
    )
    if definition.fields:
        print_table("its context", _fields(definition), ("field", "required", "must_be"))
    if definition.has_models:
        print_table("its models", [*schema.model_rows(definition)], MODEL_COLUMNS)


def _lines(definition: Definition) -> Iterator[str]:
    ends = [state for state in definition.states if state in definition.terminal]
    yield f"begins in {definition.initial}, " + (f"ends in {', '.join(ends)}" if ends else "never ends")
    for effect in definition.birth_effects:
        yield f"its birth asks for the effect {effect.name}"
    for state, deadline in definition.deadlines.items():
        own = f", or after what its {deadline.context_key} says" if deadline.context_key else ""
        yield f"{state} is left by {deadline.trigger} after {duration_text(deadline)}{own}"
    if resting := [state for state in definition.states if state in definition.resting]:
        yield f"may rest in {', '.join(resting)} without counting as stuck"
    for link in definition.links:
        yield f"{link.context_key} names a {link.type}: its {link.role}, which knows this one among its {link.inverse}"
    for event in dict.fromkeys(move.event for move in definition.transitions if move.event):
        moves = dict.fromkeys(move.trigger for move in definition.transitions if move.event == event)
        yield f"the events of {', '.join(moves)} are also named {event}"
    if definition.required_metadata:
        yield f"each event says: {', '.join(definition.required_metadata)}"


def _fields(definition: Definition) -> list[dict[str, str]]:
    return [
        {"field": each.name, "required": "yes" if each.required else "", "must_be": each.description}
        for each in definition.fields
    ]


def _count(value: object) -> str:
    return number_of(len(value), "part") if isinstance(value, list) and value else ""


def _deprecated(definition: Definition, known: Sequence[Mapping[str, Any]] | None) -> list[str]:
    """The deprecated parts of a definition: from the database, or from the code if there is no database."""
    if known is None:
        return [f"state {state}: {why}" for state, why in definition.deprecated.items()] + [
            f"trigger {move.trigger}: {move.deprecated}" for move in definition.transitions if move.deprecated
        ]
    key = (definition.type, definition.version)
    return [deprecation_warning(row) for row in known if (row["type"], row["version"]) == key]


def _approvers(point: ApprovalPoint) -> str:
    return f"{point.quorum} of {', '.join(point.deciders) or 'all but the author'}"


def _moves(definition: Definition) -> list[dict[str, str]]:
    return [
        {
            "trigger": move.trigger,
            "source": source,
            "dest": move.dest,
            "by": ", ".join(move.authorities),
            "guards": ", ".join(guard.name for guard in move.when),
            "approval": _approvers(move.approval) if move.approval else "",
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
def graph(
    type_: Annotated[str, typer.Argument(metavar="TYPE|FILE", help="A workflow type, or a Python file.")],
    version: VERSION = "",
    of: Annotated[str, typer.Option("--type", help="Of a file that has several.")] = "",
    as_json: AsJson = False,
) -> None:
    """Print a definition as a Mermaid state diagram; that of a FILE also while it is being written, with its faults on
    standard error.

    \b
    Examples:
      interlock definitions graph story > story.mmd
      interlock definitions graph deploy.py
    """
    definition = files.drawn(type_, of, version) if files.is_file(type_) else _known().get(type_, version or None)
    drawn = mermaid(definition)
    if not print_json({"mermaid": drawn}, as_json):
        block(drawn)
