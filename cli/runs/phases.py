"""`interlock phase`: list, freeze and thaw the phases of a project."""

from collections.abc import Callable
from typing import Annotated

import typer

from interlock.cli.lib.listing import lists_all
from interlock.cli.lib.options import By, IfVersion
from interlock.cli.lib.output import AsJson, print_json, say
from interlock.db.core.instances import InstanceRow
from interlock.db.orchestration import phases
from interlock.workers.client.client import Client
from interlock.workers.overrides import phases as moving
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.runtime import Runtime

HELP = """Phases: named parts of a project's work, with rules for what may be changed and what may land. Plans declare
them; operators freeze and thaw them.

\b
Exit code: 0 done, 2 refused: nothing was changed, 1 failed.
"""
app = typer.Typer(no_args_is_help=True, help=HELP)
COLUMNS = ("phase", "state", "since", "by", "reason", "workstreams")

Ref = Annotated[str, typer.Argument(metavar="PHASE", help="The phase's name, as in plans.")]
Reason = Annotated[str, typer.Option(help="Why; stored in history and shown to whoever waits.")]


lists_all(
    app,
    "phase",
    "List phases: whether they are frozen, since when and why, and how many workstreams are in them.",
    phases.listed,
    COLUMNS,
)


@app.command()
def freeze(ref: Ref, by: By, reason: Reason, if_version: IfVersion = None, as_json: AsJson = False) -> None:
    """Freeze PHASE: none of its tasks starts and none of its workstreams lands, until it is thawed.

    Running tasks and gates go on.

    \b
    Example:
      interlock phase freeze release --reason 'code freeze until Monday'
    """
    _move(moving.freeze, ref, OverrideOrder(by, reason, if_version=if_version), as_json)


@app.command()
def thaw(ref: Ref, by: By, reason: Reason, if_version: IfVersion = None, as_json: AsJson = False) -> None:
    """Thaw a frozen PHASE: its runs go on.

    \b
    Example:
      interlock phase thaw release --reason 'the release is out'
    """
    _move(moving.thaw, ref, OverrideOrder(by, reason, if_version=if_version), as_json)


def _move(
    move: Callable[[Runtime, str, OverrideOrder], InstanceRow], ref: str, order: OverrideOrder, as_json: bool
) -> None:
    with Client() as client:
        made = move(client.runtime, ref, order)
    if not print_json(dict(made), as_json):
        where = f"phase {made['entity_id']} of project {made['project']} is "
        say(where, (made["current_state"], "bold"), f": {order.reason}")
