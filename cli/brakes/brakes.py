"""`interlock brake`: list, show, put on and release brakes."""

from typing import Annotated

import typer

from interlock.cli.lib.listing import lists_all
from interlock.cli.lib.moves import newest_moves
from interlock.cli.lib.orders import Order, Row, ordered
from interlock.cli.lib.output import AsJson, print_json, print_table, say
from interlock.db.connection import transaction
from interlock.db.core import brakes
from interlock.workers.client.client import Client
from interlock.workers.overrides.brakes import put_brake, release_brake, require_brake
from interlock.workers.overrides.transaction import OverrideOrder

HELP = """Brakes: what an actor, a run, a project or an instance asks for is held, after it used up a budget or went
back and forth too often. Nothing is lost: an operator releases the brake, and what it held goes on in its order.

\b
Exit code: 0 done, 2 refused: nothing was changed, 1 failed.
"""
app = typer.Typer(no_args_is_help=True, help=HELP)
COLUMNS = ("entity_id", "kind", "shown", "held", "since", "reason", "by")
MOST_HELD = 20

Name = Annotated[str, typer.Argument(metavar="NAME", help="The brake's, as `interlock brake list` shows it.")]


lists_all(app, "brake", "List the brakes that are on: what each holds, since when and why.", brakes.listed, COLUMNS)


@app.command()
def show(brake: Name, as_json: AsJson = False) -> None:
    """Show a brake that is on: why, since when, the oldest triggers that it holds, and its newest moves.

    \b
    Example:
      interlock brake show actor-1f0c2a9b
    """
    with Client() as client:
        with transaction(client.runtime.database) as connection:
            found = require_brake(connection, brake, client.project)
            held = brakes.held(connection, found["brake_id"], limit=MOST_HELD)
        events = newest_moves(client, found["brake_id"])
    if print_json({**found, "requests": held, "history": events}, as_json):
        return
    say((found["entity_id"], "bold"), f" of project {found['project']} is on for {found['kind']} {found['shown']}")
    say(f"since {found['since']:%Y-%m-%d %H:%M:%S} UTC, by {found['by']}: {found['reason']}")
    print_table(f"{found['held']} triggers held", held, ("accepted_at", "instance", "trigger", "triggered_by"))


def _say_state(brake: Row) -> None:
    say(f"brake {brake['entity_id']} of project {brake['project']} is ", (brake["current_state"], "bold"))


@app.command()
@ordered(_say_state)
def put(
    order: OverrideOrder,
    kind: Annotated[str, typer.Argument(metavar="KIND", help="actor, run, project or instance.")],
    ref: Annotated[str, typer.Argument(metavar="NAME", help="Of the actor, run or instance. Of a project: none.")] = "",
) -> Order:
    """Put a brake on by hand: from now on, what it asks for is held.

    \b
    Examples:
      interlock brake put actor agent-7 --reason 'it deletes tests'
      interlock brake put project --project billing --reason 'the API is down'
    """
    return lambda runtime: put_brake(runtime, kind, ref, order)


@app.command()
@ordered(_say_state)
def release(order: OverrideOrder, brake: Name) -> Order:
    """Release a brake. What it held goes on within a second, in the order accepted, and its budget counts anew.

    \b
    Example:
      interlock brake release actor-1f0c2a9b --reason 'its loop is mended'
    """
    return lambda runtime: release_brake(runtime, brake, order)
