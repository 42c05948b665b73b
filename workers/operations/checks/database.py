"""Checks of the database: its server, login, schema and protections, and the recorded definitions."""

from collections.abc import Iterator, Sequence

from sqlalchemy import Connection, RowMapping

from interlock.db import migrate
from interlock.db.audit import schema_state
from interlock.db.connection import transaction
from interlock.db.core import definitions, deprecations
from interlock.db.operations import health, instance_migration, protections
from interlock.db.schema import AUDITOR, CLIENT, ENGINE, OWNER, ROLES, SCHEMA
from interlock.workers.engine.deprecations import deprecation_warning
from interlock.workers.operations.checks.finding import Finding
from interlock.workers.runtime import Runtime
from interlock.workflows.output.counts import number_of

OLDEST_SUPPORTED_POSTGRES = 150_000
CHANGED = 10  # at most this many objects of the schema are named
RIGHTS = 5  # at most this many objects are named on which a login has a right
# What the attributes of a role give it.
ATTRIBUTES = {
    "CREATEROLE": "make itself a member of other roles",
    "CREATEDB": "create databases",
    "REPLICATION": "copy the whole server",
    "BYPASSRLS": "pass by row security",
}
IN_USE = 10  # at most this many deprecations in use are named


def check_database(runtime: Runtime) -> Iterator[Finding]:
    """The server, its durability, this process's login, the schema and its protections, the recorded definitions."""
    with transaction(runtime.database) as connection:
        server = health.server(connection)
        old = server["number"] < OLDEST_SUPPORTED_POSTGRES
        cure = "use 15 or newer" if old else ""
        yield Finding("database", "fail" if old else "ok", f"PostgreSQL {server['version']}", cure)
        if server["fsync"] != "on" or server["synchronous_commit"] == "off":
            cure = "set fsync = on and synchronous_commit = on in postgresql.conf"
            yield Finding("durability", "warn", "commits are not flushed to disk", cure)
        yield _login(connection)
        yield _schema(connection)
        yield _recorded(connection, runtime)
        yield _protection(connection)


def _protection(connection: Connection) -> Finding:
    off = protections.switched_off(connection)
    current, newest = migrate.revision(connection)
    gone = protections.missing(connection) if current == newest else []
    changed = [each for each, _ in schema_state.changed(connection)] if current == newest else []
    if not (off or gone or changed):
        as_left = _as_recorded(connection) if current == newest else "a migration is due"
        return Finding("protection", "ok", f"every protecting trigger is on, and {as_left}")
    named = [f"{table}.{trigger}" for table, triggers in off.items() for trigger in triggers]
    message = [f"protecting triggers are switched off: {', '.join(named)}"] if off else []
    message += [f"protecting triggers were dropped: {', '.join(gone)}"] if gone else []
    if changed and not message:
        message = [f"the schema is not as the last migration left it: {', '.join(changed[:CHANGED])}"]
    cure = [
        f"ALTER TABLE {SCHEMA}.{table} {', '.join(f'ENABLE ALWAYS TRIGGER {trigger}' for trigger in triggers)}"
        for table, triggers in off.items()
    ]
    if gone:
        cure += ["interlock playbook show audit-finding"]
    elif changed and not off:
        cure += ["interlock playbook show audit-finding, or, if it was changed on purpose, interlock migrate --record"]
    return Finding("protection", "fail", "; ".join(message), "; ".join([*cure, "then `interlock audit verify`"]))


def _as_recorded(connection: Connection) -> str:
    last = schema_state.recorded(connection)
    often = number_of(last["times"], "time")
    return f"the schema is as {last['login']} recorded it at {last['recorded_at']} UTC (recorded {often} so far)"


def _login(connection: Connection) -> Finding:
    login = health.login(connection, (ENGINE, CLIENT, AUDITOR, OWNER))
    name = '"' + login["name"].replace('"', '""') + '"'
    if login["superuser"]:
        message = f"Interlock logs in as {login['name']}, a superuser or a member of one: its SQL can run programs on "
        message += "the database's machine"
        cure = f"give DATABASE_URL another login: CREATE ROLE … LOGIN PASSWORD '…'; GRANT {ENGINE} TO …"
        return Finding("role", "warn", message, cure)
    part = login["part"]
    if part is None:
        cure = f"GRANT {ENGINE} TO {name} for workers and operators, or {CLIENT} for an application"
        return Finding("role", "fail", f"{login['name']} is a member of none of {', '.join(ROLES)}", cure)
    if beyond := list(_beyond(login)):
        cure = f"give DATABASE_URL a login that is a member of {part} and nothing else"
        return Finding("role", "warn", f"{login['name']} can do what {part} may, and also {'; '.join(beyond)}", cure)
    return Finding("role", "ok", f"{login['name']} can do what {part} may, and nothing beyond that")


def _beyond(login: RowMapping) -> Iterator[str]:
    """What a login may do beyond its part, in words."""
    if login["owner"]:
        yield "change the schema and switch its protections off"
    yield from (ATTRIBUTES[each] for each in login["attributes"])
    yield from (f"what members of {each} may" for each in login["predefined"])
    if login["grants"]:
        yield f"make others members of {', '.join(login['grants'])}"
    if login["creates"]:
        yield "create objects in the schema"
    if login["replica"]:
        yield "set session_replication_role"
    if login["owns"]:
        yield f"change and drop what it owns: {_named(login['owns'])}"
    if login["tables"]:
        yield f"use tables ({_named(login['tables'], '; ')})"
    if login["sequences"]:
        yield f"use sequences ({_named(login['sequences'])})"
    if login["functions"]:
        yield f"call {_named(login['functions'])}"


def _named(each: Sequence[str], between: str = ", ") -> str:
    more = f"{between}and {len(each) - RIGHTS} more" if len(each) > RIGHTS else ""
    return between.join(each[:RIGHTS]) + more


def _schema(connection: Connection) -> Finding:
    current, newest = migrate.revision(connection)
    if current == newest:
        return Finding("schema", "ok", f"{SCHEMA}, revision {current}")
    return Finding("schema", "fail", f"{SCHEMA}, revision {current}, newest {newest}", "interlock migrate")


def _recorded(connection: Connection, runtime: Runtime) -> Finding:
    if differing := definitions.unrecorded(connection, runtime.catalogue):
        message = f"the database lacks these definitions, or has other content: {', '.join(differing)}"
        return Finding("definitions", "fail", message, "interlock migrate")
    return Finding("definitions", "ok", f"{len(definitions.listed(connection))} recorded")


def check_changes(runtime: Runtime) -> Iterator[Finding]:
    """Deprecated parts in use, and versions that this process does not have."""
    with transaction(runtime.database) as connection:
        announced = deprecations.listed(connection)
        lost = [
            f"{type_} {version} ({live} live)"
            for type_, version, live in instance_migration.live_versions(connection)
            if (type_, version) not in runtime.catalogue
        ]
    if lost:
        message = f"instances use definition versions that this process does not have: {', '.join(lost)}"
        cure = "add their module to INTERLOCK_DEFINITIONS, or interlock definitions migrate"
        yield Finding("changes", "fail", message, cure)
    used = [row for row in announced if row["live"] and not row["removed_at"]]
    for row in used[:IN_USE]:
        use = f"{row['live']} live instances use it, {row['uses']} uses since it was announced"
        message = f"{deprecation_warning(dict(row))}; {use}"
        yield Finding("changes", "warn", message, row["guide"] or "interlock definitions deprecated")
    if not (used or lost):
        yield Finding("changes", "ok", f"{number_of(len(announced), 'deprecation')}, none in use")
