"""`interlock migrate`: shows what it will do to which database, and asks if that contains anything else."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from interlock.cli.lib.output import FAILED, AsJson, errors, print_json, say
from interlock.db import migrate
from interlock.db.connection import transaction
from interlock.db.core import definitions
from interlock.db.schema import SCHEMA
from interlock.workers.client.client import Client
from interlock.workers.overrides import operators
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput

HELP = """Bring the database to the newest schema and record the definitions.

Everything is in one schema (INTERLOCK_SCHEMA, `interlock`); nothing outside of it is touched. If the database contains
anything else, the command asks first; without a terminal, it requires --yes.

\b
Examples:
  interlock migrate --check                  report what is to be done; exit code 1 if anything
  interlock migrate --yes --json | jq .revision
"""


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("migrate", help=HELP)(migrate_)


def migrate_(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Only report what is to be done.")] = False,
    as_json: AsJson = False,
) -> None:
    """Migrate, and record the definitions."""
    with Client() as client:
        with transaction(client.runtime.database) as connection:
            found = migrate.status(connection)
            new = [] if found.due else definitions.unrecorded(connection, client.runtime.catalogue)
        if check:
            _tell(found, new, as_json)
            raise typer.Exit(FAILED if found.due or new else 0)
        if found.due and found.others:
            _ask(found, yes)
        _migrate(client.runtime, found, as_json)


def _tell(found: migrate.MigrationStatus, new: Sequence[str], as_json: bool) -> None:
    if as_json:
        print_json(asdict(found) | {"schema": SCHEMA, "unrecorded": new})
    elif found.due:
        say(f"{_intent(found)}. Nothing was done: run `interlock migrate`")
    elif new:
        say(f"definitions are not recorded: {', '.join(new)}. Nothing was done: run `interlock migrate`")
    else:
        say(f"nothing to do: schema {SCHEMA} is at revision {found.current}")


def _ask(found: migrate.MigrationStatus, yes: bool) -> None:
    others = ", ".join(f"{name} ({count} tables and views)" for name, count in found.others.items())
    message = f"{_intent(found)}. Database {found.database} also has other schemas, which are not touched: {others}"
    if not yes and not sys.stdin.isatty():
        raise BadInput(f"{message}. Give --yes to go on")
    say(message, to=errors)
    if not yes:
        typer.confirm("Continue?", abort=True, err=True)


def _intent(found: migrate.MigrationStatus) -> str:
    how = "created at" if found.current is None else f"migrated from revision {found.current} to"
    return f"schema {SCHEMA} of database {found.database} is to be {how} revision {found.newest}"


def _migrate(runtime: Runtime, found: migrate.MigrationStatus, as_json: bool) -> None:
    migrate.upgrade(runtime.database)
    with transaction(runtime.database) as connection:
        recorded = [f"{each.type} {each.version}" for each in definitions.record(connection, runtime.catalogue)]
        granted = operators.first(connection, runtime.settings.operators)
    if as_json:
        where = {"database": found.database, "schema": SCHEMA, "was": found.current, "revision": found.newest}
        print_json(where | {"recorded": recorded, "operators": granted})
    else:
        say(f"schema {SCHEMA} at revision {found.newest}; recorded: {', '.join(recorded) or 'nothing new'}")
        if granted:
            say(f"operators: {', '.join(granted)}")
