"""Statements given to psycopg directly, where each tenth of a millisecond counts.

SQLAlchemy's connection and result cost as much as psycopg, the parameters and the network together (0.12 ms of 0.3 a
trigger); its pool, its transactions and its error classes stay.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.rows import dict_row
from sqlalchemy import Connection, Dialect, Engine, PoolProxiedConnection
from sqlalchemy.exc import DBAPIError

Row = dict[str, Any]  # by column name
Cursor = psycopg.Cursor[Row]


def first_row(engine: Engine, text: str, given: Mapping[str, Any]) -> Row | None:
    """Run a statement that is a transaction of its own; its first row, or None.

    Args:
        engine: made with `single_statements`.
        text, given: the statement and its parameters, as psycopg reads them.

    Raises:
        DBAPIError: as SQLAlchemy itself would raise it.
    """
    pooled = engine.raw_connection()
    try:
        with _cursor(pooled, engine.dialect, text, given) as cursor:
            return cursor.execute(text, given).fetchone()
    except DBAPIError as error:
        if error.connection_invalidated:
            pooled.invalidate(error)
        raise
    finally:
        pooled.close()


def rows(connection: Connection, text: str, given: Mapping[str, Any]) -> list[Row]:
    """Run a statement in a transaction of SQLAlchemy's; its rows.

    Raises:
        DBAPIError: as SQLAlchemy itself would raise it.
    """
    try:
        with _cursor(connection.connection, connection.dialect, text, given) as cursor:
            return cursor.execute(text, given).fetchall()
    except DBAPIError as error:
        if error.connection_invalidated:
            connection.invalidate(error)
        raise


@contextmanager
def _cursor(pooled: PoolProxiedConnection, dialect: Dialect, text: str, given: Mapping[str, Any]) -> Iterator[Cursor]:
    driver: psycopg.Connection[Any] = pooled.driver_connection  # type: ignore[assignment] # psycopg is our driver
    try:
        yield driver.cursor(row_factory=dict_row)
    except psycopg.Error as error:
        raise DBAPIError.instance(
            text, dict(given), error, psycopg.Error, connection_invalidated=driver.closed, dialect=dialect
        ) from error
