"""`interlock operator`: who may override."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from cli.output import AsJson, console, print_json, print_table
from cli.reading import when
from db import operators
from db.connect import transaction
from workers.client import Client
from workers.operators import grant, os_user, revoke

HELP = """Who may override (`interlock override --help`). Whoever migrates a new database is the first;
INTERLOCK_OPERATORS names others. A grant that ended is kept: history tells who was an operator when. Where nobody is
one any more, anybody may grant it; `interlock doctor` warns of that, and before it comes to it."""
GRANT_HELP = """Make people operators.

\b
Examples:
  interlock operator grant ann bob
  interlock operator grant carol --until 12h         for a night's watch
"""
REVOKE_HELP = """End what makes NAME an operator, at once.

\b
Example:
  interlock operator revoke carol
"""
LIST_HELP = """List operators, and who granted it.

\b
Example:
  interlock operator list --all --json       also grants that have ended
"""

app = typer.Typer(no_args_is_help=True, help=HELP)

By = Annotated[
    str, typer.Option(help="Who grants it, an operator.", default_factory=os_user, show_default="the OS user")
]
EndedBy = Annotated[
    str, typer.Option("--by", help="Who revokes it, an operator.", default_factory=os_user, show_default="the OS user")
]


@app.command("list", help=LIST_HELP)
def list_(
    everybody: Annotated[bool, typer.Option("--all", help="Also those who are none any more.")] = False,
    as_json: AsJson = False,
) -> None:
    """List operators."""
    with Client() as client, transaction(client.runtime.database) as connection:
        found = [dict(row) for row in operators.grants(connection, ended=everybody)]
    if as_json:
        print_json(found)
    else:
        print_table(f"{len(found)} grants", found, ("name", "since", "granted_by", "until", "revoked_by"))


@app.command("grant", help=GRANT_HELP)
def grant_(
    names: Annotated[list[str], typer.Argument(help="As they are given with --by.")],
    by: By,
    until: Annotated[str, typer.Option(metavar="WHEN", help="Ends by itself: 12h, 3d or an ISO instant.")] = "",
    as_json: AsJson = False,
) -> None:
    """Grant."""
    with Client() as client:
        new = grant(client.runtime.database, names, by=by, until=_instant(until) if until else None)
    if as_json:
        print_json({"granted": new})
    else:
        console.print(f"granted: {', '.join(new) or 'nobody new'}", highlight=False, markup=False)


@app.command("revoke", help=REVOKE_HELP)
def revoke_(name: Annotated[str, typer.Argument(help="The operator.")], by: EndedBy, as_json: AsJson = False) -> None:
    """Revoke."""
    with Client() as client:
        revoke(client.runtime.database, name, by=by)
    if as_json:
        print_json({"revoked": name})
    else:
        console.print(f"{name} is no operator any more", highlight=False, markup=False)


def _instant(text: str) -> datetime:
    said = when(text)
    return datetime.now(UTC) + said if isinstance(said, timedelta) else said
