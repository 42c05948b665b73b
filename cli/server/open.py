"""`interlock open`: a link that signs somebody in to the console, once."""

import os
import sys
import webbrowser
from secrets import token_hex
from typing import Annotated

import typer

from interlock.cli.lib import projects
from interlock.cli.lib.options import person
from interlock.cli.lib.output import AsJson, errors, print_json, say
from interlock.supervisor.home import home_of
from interlock.supervisor.processes import status as report
from interlock.workers.client.client import Client
from interlock.workers.overrides.console_sessions import LINK_LIFE, SESSION_LIFE, make_link
from interlock.workers.overrides.tokens import TokenTerms
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.settings import settings
from interlock.workflows.errors import NotRunning
from interlock.workflows.machines.governance.api_token import Role

PAGE = "/sign-in"
OPERATORS = ("operator", "admin")


def open_(
    by: Annotated[str, person("The operator.")],
    role: Annotated[
        Role, typer.Option(help="What the session may do: read-only, agent, operator; or admin: also revoke tokens.")
    ] = "operator",
    name: Annotated[str, typer.Option(help="In whose name it acts. [yours, if the role is operator or admin]")] = "",
    within: Annotated[list[str] | None, typer.Option("--in", help="A project it is for; repeat it. [all]")] = None,
    url: Annotated[
        str,
        typer.Option(help="Where the console is, if `interlock up` does not run here: https://interlock.example.org"),
    ] = "",
    reason: Annotated[str, typer.Option(help="Why; stored in history.")] = "to look at the console",
    as_json: AsJson = False,
) -> None:
    """Print a link to the console, and open it where there is a browser. It signs in once, within five minutes.

    The session ends by itself after twelve hours, by signing out, or by `interlock token revoke`. Link and session are
    tokens: `interlock token list` shows them.

    \b
    Examples:
      interlock open
      interlock open --name bob --role agent --in billing
      interlock open --role admin --reason 'a token leaked'
      interlock open --json | jq -r .url
    """
    projects.use_none()
    address = url.rstrip("/") or _address()
    if role not in OPERATORS and not name:
        name = f"{role}-{token_hex(3)}"
    with Client() as client:
        terms = TokenTerms(name or by, role, tuple(within) if within else None)
        link = make_link(client.runtime, terms, OverrideOrder(by, reason))
    opening = f"{address}{PAGE}#{link.token}"
    if print_json({"url": opening, "name": terms.name, "expires_at": link.row["expires_at"]}, as_json):
        return
    say(opening)
    minutes, hours = LINK_LIFE.total_seconds() / 60, SESSION_LIFE.total_seconds() / 3600
    say(f"It signs in {terms.name} once, within {minutes:g} min, for {hours:g} h at most.", to=errors)
    if sys.stdout.isatty() and has_display():
        webbrowser.open(opening)


def _address() -> str:
    chosen = settings()
    found = report.status(chosen)
    if not found.running or found.api_url is None:
        raise NotRunning(home_of(chosen).path)
    return found.api_url


def has_display() -> bool:
    """Whether a browser could show anything: always on macOS, elsewhere in a graphical session."""
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
