"""`interlock token`: create, list and revoke the tokens with which programs act over HTTP and MCP."""

from secrets import token_hex
from typing import Annotated

import typer

from interlock.cli.lib.options import By
from interlock.cli.lib.output import AsJson, errors, print_json, print_table, say
from interlock.cli.lib.parsing import instant
from interlock.cli.lib.projects import OnlyProject
from interlock.workers.client.client import Client
from interlock.workers.overrides import tokens
from interlock.workers.overrides.tokens import TokenTerms
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workflows.errors import BadInput
from interlock.workflows.machines.governance.api_token import Role

HELP = """Tokens: with one, a program acts over HTTP and MCP in a name, as a role, in some projects, until it expires
or is revoked. Each is an instance with a history, and each event says by which token it was asked for.

\b
Roles: read-only reads; agent also creates instances and fires what is open to anyone, to who holds a task, or to
deciders; operator may do what the operator of its name may; admin also issues tokens and grants.

\b
Exit code: 0 done, 2 refused: nothing was changed, 1 failed.
"""
COLUMNS = ("entity_id", "state", "role", "where", "issued_by", "issued_at", "expires_at", "last_used_at", "reason")
NEVER = "never"

app = typer.Typer(no_args_is_help=True, help=HELP)


@app.command()
def create(
    by: By,
    role: Annotated[Role, typer.Option(help="read-only, agent, operator or admin.")],
    project: Annotated[
        list[str] | None, typer.Option(help="A project it is good for; repeat it. [INTERLOCK_PROJECT, else default]")
    ] = None,
    all_projects: Annotated[bool, typer.Option("--all-projects", help="It is good for all projects.")] = False,
    name: Annotated[
        str, typer.Option(help="In whose name it acts; an operator's or admin's: yours. [else a new one]")
    ] = "",
    expires: Annotated[str, typer.Option(metavar="WHEN", help="12h, 30d, an ISO instant, or never.")] = "90d",
    reason: Annotated[str, typer.Option(help="Why; stored in history.")] = "for a program",
    as_json: AsJson = False,
) -> None:
    """Create a token, and print it: once, because only its SHA-256 is stored.

    \b
    Examples:
      interlock token create --role agent --project billing --name agent-7
      interlock token create --role read-only --all-projects --expires never --reason 'the dashboard'
      interlock token create --role admin --all-projects --name ann --expires 8h --reason 'the migration' --json
    """
    if project and all_projects:
        raise BadInput("give --project or --all-projects, not both")
    with Client() as client:
        where = None if all_projects else tuple(project or (client.project,))
        ends = None if expires == NEVER else instant(expires, "--expires")
        terms = TokenTerms(name or _usual_name(role, by), role, where, ends)
        issued = tokens.issue(client.runtime, terms, OverrideOrder(by, reason))
    row = issued.row
    if not print_json({"token": issued.token, **row}, as_json):
        say(issued.token)
    end = f"until {row['expires_at']:%Y-%m-%d %H:%M:%S} UTC" if row["expires_at"] else "until it is revoked"
    say(
        f"{row['entity_id']}: {row['role']} in {_where(row['projects'])}, {end}. The token is not shown again: keep it "
        "where only its program reads it.",
        to=errors,
    )


@app.command("list")
def list_(
    project: OnlyProject = None,
    ended: Annotated[bool, typer.Option("--all", help="Include revoked and expired tokens.")] = False,
    as_json: AsJson = False,
) -> None:
    """List tokens: who acts with each, as what, where, until when, and when it was last used; never the token itself.

    \b
    Examples:
      interlock token list
      interlock token list --project billing --all
    """
    with Client() as client:
        found = tokens.list_tokens(client.runtime, project=project, ended=ended)
    if not print_json(found, as_json):
        rows = [{**row, "where": _where(row["projects"])} for row in found]
        print_table(f"{len(rows)} tokens", rows, COLUMNS)


@app.command()
def revoke(
    named: Annotated[str, typer.Argument(metavar="NAME|ID", help="Whose tokens, all of them; or the id of one.")],
    by: By,
    reason: Annotated[str, typer.Option(help="Why; stored in history.")],
    as_json: AsJson = False,
) -> None:
    """Revoke the tokens of a name, or one by its id: from now on they give no right, whatever is cached.

    \b
    Examples:
      interlock token revoke agent-7 --reason 'its machine was sold'
      interlock token revoke 019a8c1e-5e0b-7c35-9d0a-4a4f2b6a7c11 --reason 'it was in a log'
    """
    with Client() as client:
        revoked = tokens.revoke_tokens(client.runtime, named, OverrideOrder(by, reason))
    if not print_json({"revoked": revoked}, as_json):
        for row in revoked:
            say((row["entity_id"], "bold"), f" ({row['role']} in {_where(row['projects'])}) is revoked")


def _usual_name(role: Role, by: str) -> str:
    """Who acts with a token that names nobody: an operator's is the operator's own."""
    return by if role in ("operator", "admin") else f"{role}-{token_hex(3)}"


def _where(projects: list[str] | None) -> str:
    return "all projects" if projects is None else ", ".join(projects)
