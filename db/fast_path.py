"""Runs statements through psycopg directly, on paths where each tenth of a millisecond counts.

SQLAlchemy's connection and result cost as much as psycopg, the parameters and the network together (0.12 ms of 0.3 a
trigger). Its pool, transactions and error classes are still used.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.rows import dict_row
from sqlalchemy import Connection, Engine, PoolProxiedConnection
from sqlalchemy.exc import DBAPIError

from interlock.db.login import denied
from interlock.workflows.errors import NotYours

Row = dict[str, Any]  # by column name


def first_row(engine: Engine, text: str, parameters: Mapping[str, Any]) -> Row | None:
    """Run a statement as its own transaction; returns its first row, or None. Arguments and errors as of `all_rows`."""
    found = all_rows(engine, text, parameters)
    return found[0] if found else None


def all_rows(engine: Engine, text: str, parameters: Mapping[str, Any]) -> list[Row]:
    """Run a statement as its own transaction; returns its rows.

    Args:
        engine: made with `single_statements`.
        text, parameters: the statement and its parameters, in psycopg's form.

    Raises:
        NotYours: the login may not do it.
        DBAPIError: as SQLAlchemy itself would raise it.
    """
    pooled = engine.raw_connection()
    try:
        with _errors(pooled, engine, text, parameters):
            return _rows(pooled, text, parameters)
    except BaseException as error:
        # A statement that a signal or a cancelled task interrupted may still be running on its connection.
        refused = isinstance(error, NotYours) or (isinstance(error, DBAPIError) and not error.connection_invalidated)
        if not refused:
            pooled.invalidate(error)
        raise
    finally:
        pooled.close()


def rows(connection: Connection, text: str, parameters: Mapping[str, Any]) -> list[Row]:
    """Run a statement in a transaction of SQLAlchemy's; returns its rows.

    Raises:
        NotYours: the login may not do it.
        DBAPIError: as SQLAlchemy itself would raise it.
    """
    if not connection.in_transaction():
        connection.begin()  # as SQLAlchemy begins one by itself: without it, COMMIT would do nothing
    try:
        with _errors(connection.connection, connection.engine, text, parameters):
            return _rows(connection.connection, text, parameters)
    except DBAPIError as error:
        if error.connection_invalidated:
            connection.invalidate(error)
        raise


def _rows(pooled: PoolProxiedConnection, text: str, parameters: Mapping[str, Any]) -> list[Row]:
    driver = pooled.driver_connection
    if isinstance(driver, psycopg.Connection):  # `description` would cost as much as all the rest
        with driver.cursor(row_factory=dict_row) as own:
            return own.execute(text, parameters).fetchall()
    cursor = pooled.cursor()  # waits for psycopg's async one in a greenlet
    try:
        cursor.execute(text, parameters)
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, found, strict=True)) for found in cursor.fetchall()]
    finally:
        cursor.close()


@contextmanager
def _errors(pooled: PoolProxiedConnection, engine: Engine, text: str, parameters: Mapping[str, Any]) -> Iterator[None]:
    driver: psycopg.Connection[Any] = pooled.driver_connection  # type: ignore[assignment] # psycopg is our driver
    try:
        yield
    except psycopg.Error as error:
        if refused := denied(error, engine.url.username):
            raise refused from error
        raise DBAPIError.instance(
            text,
            dict(parameters),
            error,
            psycopg.Error,
            hide_parameters=engine.hide_parameters,
            connection_invalidated=driver.closed,
            dialect=engine.dialect,
        ) from error
