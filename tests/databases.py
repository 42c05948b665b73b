"""Databases for tests: one template, migrated once, and copies of it that are dropped afterwards."""

import contextlib
from collections.abc import Iterator
from secrets import token_hex
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from interlock.db import migrate
from interlock.db.connection import make_engine, transaction
from interlock.db.core import definitions
from interlock.db.schema import ROLES
from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.settings import Settings
from interlock.workflows.catalogue import catalogue


def make_template(servers: Servers) -> str:
    """Create and migrate a database on these servers; returns its name."""
    name = f"interlock_template_{token_hex(4)}"
    for role in ROLES:  # no statement of ours may depend on it
        _run(servers, f"ALTER ROLE {role} SET search_path = nowhere")
    _run(servers, f"CREATE DATABASE {name} OWNER {_owner(servers)}")
    prepare(beside(servers.owner_url, name))
    return name


def prepare(url: str) -> None:
    """Upgrade a database to the newest schema and record the shipped definitions; `url`: for its owner."""
    engine = make_engine(Settings(database_url=url).resolved_database_url())
    try:
        migrate.upgrade(engine)
        with transaction(engine) as connection:
            definitions.record(connection, catalogue())
    finally:
        engine.dispose()


@contextlib.contextmanager
def copy_of(servers: Servers, template: str) -> Iterator[str]:
    """Copy a database for the duration of a block; yields its URL for the engine."""
    name = f"interlock_test_{token_hex(6)}"
    with psycopg.connect(_superuser(servers), autocommit=True) as connection:  # another login would take 10 ms
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY OWNER {_owner(servers)}")  # type: ignore[call-overload]
        try:
            yield beside(servers.database_url, name)
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")  # type: ignore[call-overload]


def as_superuser(servers: Servers, url: str) -> str:
    """The URL of a database for the superuser, who can switch every protection off."""
    return beside(_superuser(servers), url.rpartition("/")[2])


def as_client(servers: Servers, url: str) -> str:
    """The URL of a database for a client, who fires triggers and reads."""
    return beside(servers.client_url, url.rpartition("/")[2])


def as_owner(servers: Servers, url: str) -> str:
    """The URL of a database for the schema's owner, who migrates it."""
    return beside(servers.owner_url, url.rpartition("/")[2])


def _superuser(servers: Servers) -> str:
    return servers.superuser_url if servers.postgres_passwords else servers.database_url


def beside(url: str, name: str) -> str:
    """`url` with another database's name."""
    server, _, _ = url.rpartition("/")
    return f"{server}/{name}"


def _owner(servers: Servers) -> str:
    return str(conninfo_to_dict(servers.owner_url).get("user", "CURRENT_USER"))


def _run(servers: Servers, statement: str) -> None:
    with psycopg.connect(_superuser(servers), autocommit=True) as connection:
        connection.execute(statement)  # type: ignore[call-overload]


def hasten_logins(servers: Servers) -> None:
    """Hash the same passwords 1 time instead of 4,096 times: each login takes 2 ms less, and a test makes several."""
    with psycopg.connect(servers.superuser_url, autocommit=True) as connection:
        connection.execute("SET scram_iterations = 1")
        for login, password in servers.postgres_passwords.items():
            change = sql.SQL("ALTER ROLE {} PASSWORD {}")
            connection.execute(change.format(sql.Identifier(login), sql.Literal(password)))


TABLES = """
SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind = 'r' AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema' ORDER BY 1"""


def whole(dba: "psycopg.Connection[Any]", *, but: str = "") -> dict[str, list[Any]]:
    """Every row of every table, but of one of ours."""
    names = [name for (name,) in dba.execute(TABLES) if name != f"interlock.{but}"]
    assert len(names) > 25
    return {name: dba.execute(f"SELECT t::text FROM {name} t ORDER BY 1").fetchall() for name in names}  # type: ignore[arg-type]
