"""Databases for tests: one template, migrated once, and copies of it that are gone afterwards."""

import contextlib
from collections.abc import Iterator
from secrets import token_hex

import psycopg
from psycopg.conninfo import make_conninfo

from db import definitions, migrate, operators
from db.connect import make_engine, transaction
from workers.settings import Settings
from workflows.catalogue import catalogue


def make_template(admin_url: str) -> str:
    """Create and migrate a database beside the one of `admin_url`; its name."""
    name = f"interlock_template_{token_hex(4)}"
    _run(admin_url, f"CREATE DATABASE {name}")
    prepare(beside(admin_url, name))
    return name


def prepare(url: str) -> None:
    """Bring a database to the newest schema, with the shipped definitions recorded."""
    engine = make_engine(Settings(database_url=url).resolved_database_url())
    try:
        migrate.upgrade(engine)
        with transaction(engine) as connection:
            definitions.record(connection, catalogue())
            operators.grant(connection, ["ann"], by="test")
    finally:
        engine.dispose()


@contextlib.contextmanager
def copy_of(admin_url: str, template: str) -> Iterator[str]:
    """The URL of a copy, while the block runs."""
    name = f"interlock_test_{token_hex(6)}"
    _run(admin_url, f"CREATE DATABASE {name} TEMPLATE {template}")
    try:
        yield beside(admin_url, name)
    finally:
        _run(admin_url, f"DROP DATABASE {name} WITH (FORCE)")


def beside(url: str, name: str) -> str:
    """`url` with another database's name."""
    server, _, _ = url.rpartition("/")
    return f"{server}/{name}"


def _run(admin_url: str, statement: str) -> None:
    with psycopg.connect(make_conninfo(admin_url), autocommit=True) as connection:
        connection.execute(statement)  # type: ignore[call-overload]
