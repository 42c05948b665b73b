"""`interlock budget`: set, list and remove budgets of triggers, claims, tokens and money."""

import re
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from interlock.cli.lib.listing import lists_all
from interlock.cli.lib.options import By, Reason
from interlock.cli.lib.output import AsJson, print_json, say
from interlock.cli.lib.parsing import period_seconds
from interlock.db.core import budgets
from interlock.workers.client.client import Client
from interlock.workers.overrides.budgets import Budgeted, remove_budget, set_budget
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workflows.errors import BadInput

HELP = """Budgets: how many triggers, claims, tokens and dollars an actor, a run or a project may use. Whoever has used
one up gets a brake, which holds what it asks for until an operator releases it: `interlock brake`.

\b
Exit code: 0 done, 2 refused: nothing was changed, 1 failed.
"""
app = typer.Typer(no_args_is_help=True, help=HELP)
COLUMNS = ("kind", "shown", "counted", "resource", "terms", "used", "brake", "by", "reason")
AMOUNT = re.compile(r"(\d+(?:\.\d+)?)([kMG]?)(?:/(.+))?")
FACTORS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}
FOR_GOOD = "run"  # `50/run`: as long as the run lasts
SHOWN = 20  # names that a budget counts, of those that used most

Actor = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="For an actor; 'x*': each that begins with x, by itself; '*': each."),
]
Run = Annotated[str | None, typer.Option(metavar="RUN", help="For a run: its name or UUID; '*': each, by itself.")]


def _amount(message: str) -> Any:
    return typer.Option(metavar="N[/PERIOD]", help=message)


@app.command("set")
def set_(
    by: By,
    reason: Reason,
    actor: Actor = None,
    run: Run = None,
    triggers: Annotated[str | None, _amount("So many triggers it may fire: 1000/1h, 50k/1d.")] = None,
    claims: Annotated[str | None, _amount("So many tasks it may claim: 50/1d.")] = None,
    tokens: Annotated[str | None, _amount("So many tokens it may spend: 2M/1d.")] = None,
    usd: Annotated[str | None, _amount("So many dollars it may spend: 50/run, 200/7d.")] = None,
    as_json: AsJson = False,
) -> None:
    """Set budgets, by default for the project. Each takes the place of the one of the same resource, and counts anew.

    PERIOD is any such span (90s, 1h, 7d); without one, or with `run`, the amount is for good.

    \b
    Examples:
      interlock budget set --actor agent-7 --triggers 1000/1h --reason 'it loops sometimes'
      interlock budget set --actor '*' --tokens 2M/1d --reason 'each agent its share'
      interlock budget set --run '*' --usd 50/run --reason 'what a run is worth'
      interlock budget set --project billing --claims 500/1d --reason 'its share of the nodes'
    """
    given = {"triggers": triggers, "claims": claims, "tokens": tokens, "usd": usd}
    wanted = {name: _parsed(f"--{name}", text) for name, text in given.items() if text is not None}
    if not wanted:
        raise BadInput("a budget is of --triggers, --claims, --tokens or --usd")
    whose, order = _whose(actor, run), OverrideOrder(by, reason)
    with Client() as client:
        made = [
            set_budget(client.runtime, whose, resource, order, most=most, per_seconds=seconds)
            for resource, (most, seconds) in wanted.items()
        ]
    if not print_json([dict(each) for each in made], as_json):
        for each in made:
            say(
                f"project {each['project']}: ",
                (f"{whose.kind} {actor or run or ''}", "bold"),
                f": {_terms(each['context'])}",
            )


def _terms(terms: Mapping[str, Any]) -> str:
    period = f" in {terms['per_seconds']:g} s" if terms.get("per_seconds") else ""
    return f"{terms['most']:,.10g} {terms['resource']}{period}"


def _used(row: Mapping[Any, Any]) -> list[dict[Any, Any]]:
    """A line for each name that a budget counts; one without numbers, if nothing is used."""
    own = {**row, "terms": _terms(row)}
    return [
        {**own, "counted": use["shown"], "used": f"{use['used']:,.10g}", "brake": "on" if use["braked"] else ""}
        for use in row["uses"][:SHOWN]
    ] or [own]


lists_all(
    app,
    "budget",
    "List budgets: the terms, what is used by whom, and whether a brake is on for it.",
    lambda connection, project: budgets.with_uses(connection, budgets.listed(connection, project=project)),
    COLUMNS,
    lines=_used,
)


@app.command()
def remove(
    resource: Annotated[str, typer.Argument(help="triggers, claims, tokens or usd.")],
    by: By,
    reason: Reason,
    actor: Actor = None,
    run: Run = None,
    as_json: AsJson = False,
) -> None:
    """Remove a budget, by default the project's. A brake that it put on stays on until it is released.

    \b
    Example:
      interlock budget remove triggers --actor agent-7 --reason 'mended'
    """
    whose = _whose(actor, run)
    with Client() as client:
        made = remove_budget(client.runtime, whose, resource, OverrideOrder(by, reason))
    if not print_json(dict(made), as_json):
        say(f"the budget of {resource} for {whose.kind} {actor or run or made['project']} is ", ("removed", "bold"))


def _whose(actor: str | None, run: str | None) -> Budgeted:
    if actor is not None and run is not None:
        raise BadInput("a budget is for --actor or for --run, not for both")
    if actor is not None:
        return Budgeted("actor", actor)
    return Budgeted("project") if run is None else Budgeted("run", run)


def _parsed(option: str, text: str) -> tuple[float, float | None]:
    """`2M/1d` as 2000000.0 and 86400.0; without a period, or with `run`, None."""
    if not (match := AMOUNT.fullmatch(text)):
        raise BadInput(f"{option} {text!r} is no number and period, such as 1000/1h, 2M/1d or 50/run")
    number, factor, period = match.groups()
    most = float(number) * FACTORS[factor]
    return most, None if period in (None, FOR_GOOD) else period_seconds(period, option)
