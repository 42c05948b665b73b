"""`interlock migrate`: shows what it will do to which database, and asks if that contains anything else."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from sqlalchemy import make_url

from interlock.cli.lib.output import FAILED, AsJson, block, errors, print_json, say
from interlock.db import migrate, roles
from interlock.db.connection import transaction
from interlock.db.core import definitions
from interlock.db.schema import SCHEMA
from interlock.workers.client.client import Client
from interlock.workers.overrides import deprecations, operators
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput
from interlock.workflows.output.counts import number_of


def migrate_(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Only report what is to be done.")] = False,
    record: Annotated[
        bool, typer.Option("--record", help="Record the schema as somebody changed it on purpose.")
    ] = False,
    print_roles: Annotated[bool, typer.Option("--print-roles", help="Print the SQL for a DBA to run.")] = False,
    as_json: AsJson = False,
) -> None:
    """Bring the database to the newest schema and record the definitions.

    Everything is in one schema (INTERLOCK_SCHEMA, `interlock`); nothing outside of it is touched. If the database
    contains anything else, the command asks first; without a terminal, it requires --yes.

    It also creates the roles interlock_owner, _engine, _client and _auditor where they are missing, and grants each
    what it needs. A login that may not create roles is refused: a DBA then runs what --print-roles prints.

    A migration records the schema that it leaves, and `interlock audit verify` names each object that differs from
    that. --record names what differs, asks, and records it as it is now although nothing is due: after a change that
    was made on purpose, such as a new member of interlock_owner, or a new major version of PostgreSQL.

    \b
    Examples:
      interlock migrate --check                  report what is to be done; exit code 1 if anything
      interlock migrate --yes --json | jq .revision
      interlock migrate --check --record         also report what is not as recorded
      interlock migrate --record                 what a DBA changed on purpose is no finding any more
      interlock migrate --print-roles | psql --dbname=…
    """
    with Client() as client:
        if print_roles:
            address = make_url(client.runtime.settings.resolved_owner_url())
            block(roles.script(address.database or "", address.username or ""))
            return
        with transaction(client.runtime.owned) as connection:
            status = migrate.status(connection)
            new = [] if status.due else definitions.unrecorded(connection, client.runtime.catalogue)
            changed = migrate.changed(connection, status) if record else []
        if check:
            _print_status(status, new, changed, as_json)
            raise typer.Exit(FAILED if status.due or new or changed else 0)
        if status.due and status.others:
            _confirm(_beside_others(status), yes)
        if changed:
            _confirm(f"{_differing(changed)}. It is to be recorded as it is now", yes)
        _migrate(client.runtime, status, record, as_json)


def _print_status(status: migrate.MigrationStatus, new: Sequence[str], changed: Sequence[str], as_json: bool) -> None:
    if as_json:
        print_json(asdict(status) | {"schema": SCHEMA, "unrecorded": new, "changed": changed})
    elif status.due:
        say(f"{_intent(status)}. Nothing was done: run `interlock migrate`")
    elif new:
        say(f"definitions are not recorded: {', '.join(new)}. Nothing was done: run `interlock migrate`")
    elif changed:
        say(f"{_differing(changed)}. Nothing was done: if that was on purpose, run `interlock migrate --record`")
    else:
        say(f"nothing to do: schema {SCHEMA} is at revision {status.current}")


def _beside_others(status: migrate.MigrationStatus) -> str:
    others = ", ".join(
        f"{name} ({number_of(count, 'table or view', 'tables and views')})" for name, count in status.others.items()
    )
    return f"{_intent(status)}. Database {status.database} also has other schemas, which are not touched: {others}"


def _differing(changed: Sequence[str]) -> str:
    return f"schema {SCHEMA} is not as recorded: {', '.join(changed)}"


def _confirm(message: str, yes: bool) -> None:
    if not yes and not sys.stdin.isatty():
        raise BadInput(f"{message}. Give --yes to go on")
    say(message, to=errors)
    if not yes:
        typer.confirm("Continue?", abort=True, err=True)


def _intent(status: migrate.MigrationStatus) -> str:
    how = "created at" if status.current is None else f"migrated from revision {status.current} to"
    return f"schema {SCHEMA} of database {status.database} is to be {how} revision {status.newest}"


def _migrate(runtime: Runtime, status: migrate.MigrationStatus, record: bool, as_json: bool) -> None:
    changed = migrate.upgrade(runtime.owned, record=record)
    with transaction(runtime.owned) as connection:
        recorded = [f"{each.type} {each.version}" for each in definitions.record(connection, runtime.catalogue)]
    deprecations.announce_marks(runtime)
    granted = operators.first(runtime, runtime.settings.operators)
    where = {"database": status.database, "schema": SCHEMA, "was": status.current, "revision": status.newest}
    if not print_json(where | {"recorded": recorded, "changed": changed, "operators": granted}, as_json):
        say(f"schema {SCHEMA} at revision {status.newest}; recorded: {', '.join(recorded) or 'nothing new'}")
        if changed or record:
            say(f"recorded as it is now: {', '.join(changed) or 'the schema, which was as recorded'}")
        if granted:
            say(f"operators: {', '.join(granted)}")
