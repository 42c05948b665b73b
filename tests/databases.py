"""Databases for tests: one template, migrated once, and copies of it that are dropped afterwards."""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from secrets import token_hex
from typing import Any, TypeVar

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from interlock.db import migrate
from interlock.db.connection import make_engine, transaction
from interlock.db.core import definitions
from interlock.db.schema import ROLES
from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.client.client import Client
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from interlock.workflows.catalogue import catalogue

T = TypeVar("T")
_administering: dict[str, "psycopg.Connection[tuple[Any, ...]]"] = {}


@contextlib.contextmanager
def administered(servers: Servers) -> Iterator[None]:
    """For the duration of a block, all databases of these servers are copied on one connection: a login takes 6 ms."""
    url = _superuser(servers)
    with psycopg.connect(url, autocommit=True) as connection:
        _administering[url] = connection
        try:
            yield
        finally:
            del _administering[url]


def _administrator(servers: Servers) -> AbstractContextManager["psycopg.Connection[tuple[Any, ...]]"]:
    kept = _administering.get(_superuser(servers))
    return nullcontext(kept) if kept else psycopg.connect(_superuser(servers), autocommit=True)


def make_template(servers: Servers) -> str:
    """Create and migrate a database on these servers; returns its name."""
    name = f"interlock_template_{token_hex(4)}"
    for role in ROLES:  # no statement of ours may depend on it
        _run(servers, f"ALTER ROLE {role} SET search_path = nowhere")
    _run(servers, f"CREATE DATABASE {name} OWNER {_owner(servers)}")
    prepare(beside(servers.owner_url, name))
    settle(servers, name)
    return name


def settle(servers: Servers, name: str) -> None:
    """Make a database that is written a template: or each copy's first readers would mark its rows, and log it.

    VACUUM deletes the file from which a new connection reads what it needs to know of the catalogue. The next one
    writes it again, which takes longer than the rest of its login: once in the template, not in each copy.
    """
    url = beside(_superuser(servers), name)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM (FREEZE)")
    psycopg.connect(url).close()


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
    with _administrator(servers) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY OWNER {_owner(servers)}")  # type: ignore[call-overload]
        try:
            yield beside(servers.database_url, name)
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")  # type: ignore[call-overload]


@contextlib.contextmanager
def written(
    servers: Servers, source: str, write: Callable[[Client], T], home: Path | None = None
) -> Iterator[tuple[str, T]]:
    """Copy a database and write in it, for the duration of a block: tests that begin alike copy what was written.

    Args:
        servers: where.
        source: the database's name.
        write: what writes, with a client.
        home: the client's, for what it writes beside the database.

    Returns:
        The name of the copy, and what `write` returned.
    """
    with copy_of(servers, source) as url:
        defaults = Settings() if home is None else Settings(home=home)
        broker_url = beside(servers.broker_url, "1")  # tests use 0: what is written here leaves nothing in there
        addresses = {"database_url": url, "owner_url": as_owner(servers, url), "broker_url": broker_url}
        runtime = Runtime(defaults.model_copy(update=addresses))
        try:
            made = write(Client(runtime))
        finally:
            runtime.close()
        name = url.rpartition("/")[2]
        settle(servers, name)
        yield name, made


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
    with _administrator(servers) as connection:
        connection.execute(statement)  # type: ignore[call-overload]


def hasten(servers: Servers) -> None:
    """Spare these servers what costs CPU and proves nothing in a test.

    A login with the same password that is hashed 1 time instead of 4,096 times takes 2 ms less, and a test makes
    several. Each copy of a database is a checkpoint, after which every page is written to the log in full once more:
    compressing them takes a fifth of PostgreSQL's time. No query of a test is worth compiling. The kernel copies a file
    of a template in one call instead of in pieces.
    """
    with psycopg.connect(servers.superuser_url, autocommit=True) as connection:
        connection.execute("ALTER ROLE ALL SET file_copy_method = clone")
        for setting in ("wal_compression", "jit"):
            connection.execute(f"ALTER ROLE ALL SET {setting} = off")  # type: ignore[call-overload]
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
