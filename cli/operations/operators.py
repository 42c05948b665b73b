"""`interlock operator`: list, grant and revoke the right to override."""

from typing import Annotated

import typer

from interlock.cli.lib.options import person
from interlock.cli.lib.output import AsJson, print_json, print_table, say
from interlock.cli.lib.parsing import instant
from interlock.db.connection import transaction
from interlock.db.operations import operators
from interlock.workers.client.client import Client
from interlock.workers.overrides.operators import grant, revoke
from interlock.workflows.output.counts import number_of

HELP = """Operators may override (`interlock override --help`). The user who migrates a new database is the first
operator; INTERLOCK_OPERATORS names others. Ended grants are kept as a record. If no operator is left, anybody may
grant the right; `interlock doctor` warns about that, and beforehand when every grant has an end."""

COLUMNS = ("name", "since", "granted_by", "reason", "until", "ended_at", "revoked_by")

app = typer.Typer(no_args_is_help=True, help=HELP)

By = Annotated[str, person("Who grants it, an operator.")]
EndedBy = Annotated[str, person("Who revokes it, an operator.", "--by")]
Ended = Annotated[bool, typer.Option("--all", help="Include ended grants.")]
Reason = Annotated[str, typer.Option(help="Why.")]


@app.command("list")
def list_(ended: Ended = False, as_json: AsJson = False) -> None:
    """List operators, and who granted them the right.

    \b
    Example:
      interlock operator list --all --json       include ended grants
    """
    with Client() as client, transaction(client.runtime.database) as connection:
        found = [dict(row) for row in operators.grants(connection, ended=ended)]
    if not print_json(found, as_json):
        print_table(number_of(len(found), "grant"), found, COLUMNS)


@app.command("grant")
def grant_(
    names: Annotated[list[str], typer.Argument(help="Names, as given with --by.")],
    by: By,
    reason: Reason,
    until: Annotated[str, typer.Option(metavar="WHEN", help="When the grant ends: 12h, 3d or an ISO instant.")] = "",
    as_json: AsJson = False,
) -> None:
    """Make people operators. Each grant is an instance with a history; it acts at once, without workers.

    \b
    Examples:
      interlock operator grant ann bob --reason "they run the night shift"
      interlock operator grant carol --until 12h --reason "a night's watch"
      interlock history operator_grant/ann#2 --project interlock:governance
    """
    end = instant(until, "--until") if until else None
    with Client() as client:
        new = grant(client.runtime, names, by=by, reason=reason, until=end)
    if not print_json({"granted": new, "by": by, "reason": reason}, as_json):
        say(f"granted: {', '.join(new) or 'nobody new'}")


@app.command("revoke")
def revoke_(
    name: Annotated[str, typer.Argument(help="The operator.")], by: EndedBy, reason: Reason, as_json: AsJson = False
) -> None:
    """End NAME's grants at once.

    \b
    Example:
      interlock operator revoke carol --reason "left the team"
    """
    with Client() as client:
        revoke(client.runtime, name, by=by, reason=reason)
    if not print_json({"revoked": name, "by": by, "reason": reason}, as_json):
        say(f"{name} is no longer an operator")
