"""`interlock definitions narrow | narrowed`: restrict who may fire a trigger in a project; list the restrictions."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from sqlalchemy.exc import DBAPIError

from interlock.cli.lib.options import person
from interlock.cli.lib.output import AsJson, print_json, print_table, say
from interlock.cli.lib.projects import OnlyProject
from interlock.db.connection import transaction
from interlock.db.core import narrowings
from interlock.workers.client.client import Client
from interlock.workers.overrides import narrowing
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workflows.errors import BadInput, NotRunning
from interlock.workflows.machines.governance.narrowing import FEWER

COLUMNS = ("project", "type", "trigger", "to", "by", "since", "reason")


def known(project: str, type_: str) -> Sequence[Mapping[str, Any]]:
    """The triggers of a type that a project restricts; none if no database can be reached."""
    try:
        with Client() as client, transaction(client.runtime.database) as connection:
            return [dict(row) for row in narrowings.listed(connection, project=project, type_=type_)]
    except (NotRunning, DBAPIError):
        return []


def narrow(
    type_: Annotated[str, typer.Argument(metavar="TYPE", help="A workflow type.")],
    trigger: Annotated[str, typer.Argument(metavar="TRIGGER", help="One of its triggers.")],
    reason: Annotated[str, typer.Option(help="Why.")],
    by: Annotated[str, person("The operator.")],
    to: Annotated[str, typer.Option(metavar="WHO,WHO", help=f"Who keeps it, of: {', '.join(FEWER)}.")] = "",
    undo: Annotated[bool, typer.Option("--undo", help="Lift the restriction.")] = False,
    project: OnlyProject = None,
    as_json: AsJson = False,
) -> None:
    """Restrict who may fire a trigger in one project, more than its definition does; --undo takes that back.

    It holds for every version of the type. Triggers accepted before are not affected. Each such restriction is an
    instance of `narrowing`, with a history.

    \b
    Examples:
      interlock definitions narrow story block --to machinery,operator --reason "only leads block stories"
      interlock definitions narrow story block --undo --project billing --reason "the freeze is over"
    """
    if undo is bool(to):
        raise BadInput("give --to with the authorities that keep the trigger, or --undo")
    order = OverrideOrder(by, reason)
    with Client() as client:
        if undo:
            made = narrowing.widen_again(client.runtime, type_, trigger, order, project=project)
        else:
            wanted = [each.strip() for each in to.split(",")]
            made = narrowing.narrow(client.runtime, type_, trigger, wanted, order, project=project)
    if not print_json(dict(made), as_json):
        left = "those that its definition names" if undo else f"only {', '.join(made['context']['to'])}"
        say(f"project {made['project']}: {left} may fire {trigger} of {type_} (narrowing/{made['entity_id']})")


def narrowed(project: OnlyProject = None, as_json: AsJson = False) -> None:
    """List the triggers that projects restrict: to whom, by whom and why.

    \b
    Example:
      interlock definitions narrowed --project billing
    """
    with Client() as client, transaction(client.runtime.database) as connection:
        rows = [dict(row) for row in narrowings.listed(connection, project=project)]
    if not print_json(rows, as_json):
        print_table(f"{len(rows)} narrowed", [row | {"to": ", ".join(row["to"])} for row in rows], COLUMNS)
