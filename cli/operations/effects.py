"""`interlock effect`: actions on the outside world: list them, show one, try a dead one again."""

from collections.abc import Iterable
from typing import Annotated, Literal

import typer

from interlock.cli.lib.listing import Listing, Row, lists
from interlock.cli.lib.orders import Order, ordered
from interlock.cli.lib.output import AsJson, one_line, print_json, say
from interlock.db.core import effects
from interlock.workers.client.client import Client
from interlock.workers.overrides.retry_effect import find_effect, retry_effect
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workflows.output.counts import number_of

HELP = """Effects, actions on the outside world: list, show and retry them. A move asks for them; a worker carries
them out after its commit, under a lease, and tries again what fails.

\b
Examples:
  interlock effect list --status dead
  interlock effect show ID                 its attempts, its last error, what it returned
  interlock effect retry ID --reason 'the mail server answers again'
"""
app = typer.Typer(no_args_is_help=True, help=HELP)
COLUMNS = ("id", "name", "workflow_type", "entity_id", "status", "attempts", "created_at", "error")

Id = Annotated[str, typer.Argument(metavar="ID", help="The effect's id, as `interlock effect list` shows it.")]
Status = Literal["pending", "leased", "done", "dead", "cancelled"]


@app.command("list")
@lists("effect", COLUMNS, limit=100)
def list_(
    asked: Listing,
    status: Annotated[Status | None, typer.Option(help="Only those; `leased`: at work.")] = None,
    name: Annotated[str, typer.Option(help="Only effects of this name.")] = "",
) -> Iterable[Row]:
    """List effects, the newest first.

    \b
    Examples:
      interlock effect list --status dead
      interlock effect list --name deploy --json | jq '.[].progress'
    """
    return effects.page(asked.connection, project=asked.project, status=status or "", name=name, limit=asked.limit)


@app.command()
def show(id_: Id, as_json: AsJson = False) -> None:
    """Show an effect: what asked for it, its attempts, its progress, its last error and what it returned.

    \b
    Example:
      interlock effect show 01a21491-a0c0-716d-9c9f-142162253d70 --json | jq .progress
    """
    with Client() as client:
        row = find_effect(client.runtime, id_)
    if print_json(row, as_json):
        return
    say((row["name"], "bold"), f" of {row['workflow_type']}/{row['entity_id']} is ", (row["status"], "bold"))
    payload, tells = row["payload"], " or ".join(filter(None, (row["done_trigger"], row["failed_trigger"])))
    say(f"asked for by {payload.get('trigger')} of {payload.get('by')} at {row['created_at']:%Y-%m-%d %H:%M:%S} UTC")
    tried = f"{number_of(row['attempts'], 'attempt')}, token {row['token']}"
    say(f"queue {row['queue']}; tells {tells or 'no outcome'}; {tried}")
    if terms := row["declared"]:
        owed = f", a heartbeat each {terms['heartbeat']:g} s" if terms["heartbeat"] else ""
        retries = number_of(terms["retries"], "retry", "retries")
        say(f"declared in {terms['place']}: {retries}, {terms['timeout']:g} s each{owed}")
    if row["leased_by"]:
        say(f"held by {row['leased_by']} until {row['lease_until']:%Y-%m-%d %H:%M:%S} UTC")
    for label in ("progress", "error", "result"):
        if row[label] is not None:
            say(f"{label} {row[label] if label == 'error' else one_line(row[label])}")


def _say_retried(effect: Row) -> None:
    say((effect["name"], "bold"), f" of {effect['workflow_type']}/{effect['entity_id']} is tried again")


@app.command()
@ordered(_say_retried)
def retry(order: OverrideOrder, id_: Id) -> Order:
    """Give a dead effect a new set of attempts. For operators. Refused once its failure was told and its instance has
    moved on: then nobody would hear its outcome.

    \b
    Example:
      interlock effect list --status dead
      interlock effect retry 01a21491-a0c0-716d-9c9f-142162253d70 --reason 'the mail server answers again'
    """
    return lambda runtime: retry_effect(runtime, id_, order)
