"""`interlock limit`: set, list, show and remove limits on what runs at once or starts in a period."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from interlock.cli.lib import completing
from interlock.cli.lib.listing import lists_all
from interlock.cli.lib.moves import newest_moves
from interlock.cli.lib.orders import Order, Row, ordered
from interlock.cli.lib.output import AsJson, print_json, print_table, say
from interlock.cli.lib.parsing import period_seconds
from interlock.db.connection import transaction
from interlock.db.core import limits
from interlock.workers.client.client import Client
from interlock.workers.effects.holder import described
from interlock.workers.overrides.limits import Kind, LimitedName, no_such, remove_limit, set_limit
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workflows.errors import BadInput
from interlock.workflows.output.counts import number_of

HELP = """Limits: how many tasks, effects and jobs of a project, a type, a tool or a key may run at once, or start in a
period. What has no room waits, without an attempt being counted, and stops nothing else.

\b
Exit code: 0 done, 2 refused: nothing was changed, 1 failed.

\b
Examples:
  interlock limit set tool pytest --at-once 4 --reason 'four licenses'
  interlock limit list                     what is used, what waits
  interlock limit show tool pytest         who holds the places
"""
app = typer.Typer(no_args_is_help=True, help=HELP)
COLUMNS = ("kind", "name", "counted", "terms", "held", "started", "waiting", "next", "by", "reason")

What = Annotated[Kind, typer.Argument(metavar="KIND", help="project, type, tool or key.")]
Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="Of the type, tool or key; 'x*': each that begins with x, by itself. Of a project: none.",
        autocompletion=completing.limited,
    ),
]


def _say_terms(limit: Row) -> None:
    terms = limit["context"]
    say(f"project {limit['project']}: ", (f"{terms['kind']} {terms['name']}", "bold"), f": {_terms(terms)}")


@app.command("set")
@ordered(_say_terms)
def set_(
    order: OverrideOrder,
    kind: What,
    limited: Name = "",
    at_once: Annotated[int | None, typer.Option(metavar="N", help="So many may run at once.")] = None,
    rate: Annotated[
        str, typer.Option(metavar="N/PERIOD", help="So many may start in any such period: 10/s, 100/1h, 5/90s.")
    ] = "",
) -> Order:
    """Set a limit. It takes the place of the one of the same name, if there is one.

    What runs already goes on, and counts. A task's key is the `limit_key` of its plan, an effect's the `key` that it is
    declared with.

    \b
    Examples:
      interlock limit set key deploy-eu --at-once 3 --reason 'three servers'
      interlock limit set key 'customer:*' --at-once 1 --reason 'one job a customer'
      interlock limit set tool pytest --at-once 4 --rate 100/1h --reason 'the license'
      interlock limit set project --at-once 20 --project billing --reason 'its share of the nodes'
    """
    starts, seconds = _rate(rate) if rate else (None, None)
    counted = LimitedName(kind, limited)
    return lambda runtime: set_limit(runtime, counted, order, at_once_most=at_once, starts=starts, per_seconds=seconds)


def _terms(terms: Mapping[str, Any]) -> str:
    said = [f"{terms['at_once']} at once"] if terms.get("at_once") else []
    if terms.get("starts"):
        said.append(f"{number_of(terms['starts'], 'start')} in {terms['per_seconds']:g} s")
    return ", ".join(said)


def _used(row: Mapping[Any, Any]) -> list[dict[Any, Any]]:
    """A line for each name that a limit counts (`counted`); one without numbers, if a pattern's are not in use."""
    own, shown = {**row, "terms": _terms(row)}, ("held", "started", "waiting")
    return [
        own | {name: use[name] for name in shown} | {"counted": use["name"], "next": _next(use)} for use in row["uses"]
    ] or [own]


def _next(use: Mapping[str, Any]) -> str:
    if use["room"]:
        return "now"
    return f"{use['free_at']:%H:%M:%S} UTC" if use["started"] == use["starts"] else "when one ends"


lists_all(
    app,
    "limit",
    "List limits: terms, places held, starts that count, and how many tasks, effects and jobs wait.",
    lambda connection, project: limits.with_uses(connection, limits.listed(connection, project=project)),
    COLUMNS,
    lines=_used,
)


@app.command()
def show(kind: What, limited: Name = "", as_json: AsJson = False) -> None:
    """Show a limit: its terms, what is used of it and by whom, how many wait, when the next may start, newest moves.

    \b
    Examples:
      interlock limit show key deploy-eu
      interlock limit show project --project billing
    """
    with Client() as client:
        counted = LimitedName(kind, limited).settled(client.runtime)
        with transaction(client.runtime.database) as connection:
            found = limits.listed(connection, project=counted.project, kind=kind, name=counted.name)
            if not found:
                raise no_such(connection, counted)
            used: list[dict[str, Any]] = [
                {**use, "holders": limits.holders(connection, use["limit_id"], use["name"])}
                for use in limits.uses(connection, [found[0]["limit_id"]])
            ]
        events = newest_moves(client, found[0]["limit_id"])
    if print_json({**found[0], "uses": used, "history": events}, as_json):
        return
    say((str(counted), "bold"), f" of project {counted.project}: {_terms(found[0])}")
    say(f"set by {found[0]['by']} at {found[0]['since']:%Y-%m-%d %H:%M:%S} UTC: {found[0]['reason']}")
    print_table(number_of(len(used), "name"), used, ("name", "held", "started", "waiting", "free_at"))
    for use in used:
        for each in use["holders"]:
            since = f" since {each['since']:%Y-%m-%d %H:%M:%S} UTC" if each["since"] else ""
            say(f"  {use['name']}: {each['workflow_type']}/{each['entity_id']} by {described(each['holder'])}{since}")


def _say_removed(limit: Row) -> None:
    terms = limit["context"]
    say(f"the limit on {terms['kind']} {terms['name']} of project {limit['project']} is ", ("removed", "bold"))


@app.command()
@ordered(_say_removed)
def remove(order: OverrideOrder, kind: What, limited: Name = "") -> Order:
    """Remove a limit. What waited for it starts within a second.

    \b
    Example:
      interlock limit remove key deploy-eu --reason 'there are more servers now'
    """
    return lambda runtime: remove_limit(runtime, LimitedName(kind, limited), order)


def _rate(text: str) -> tuple[int, float]:
    """`100/1h` as 100 and 3600.0."""
    number, _, period = text.partition("/")
    if not number.isdecimal() or not period:
        raise BadInput(f"--rate {text!r} is no number and period, such as 10/s, 100/1h or 5/90s")
    return int(number), period_seconds(period, "--rate")
