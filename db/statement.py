"""One statement that is a transaction of its own, given to psycopg directly.

SQLAlchemy's connection and result cost a producer as much as psycopg, the parameters and the network together (0.12 ms
of 0.3 a trigger); its pool and its error classes stay.
"""

from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.rows import dict_row
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError


def first_row(engine: Engine, text: str, given: Mapping[str, Any]) -> dict[str, Any] | None:
    """Run a statement; its first row by column name, or None.

    Args:
        engine: made with `single_statements`.
        text, given: the statement and its parameters, as psycopg reads them.

    Raises:
        DBAPIError: as SQLAlchemy itself would raise it.
    """
    pooled = engine.raw_connection()
    connection: psycopg.Connection[Any] = pooled.driver_connection  # type: ignore[assignment] # psycopg is our driver
    try:
        return connection.cursor(row_factory=dict_row).execute(text, given).fetchone()
    except psycopg.Error as error:
        lost = connection.closed
        if lost:
            pooled.invalidate(error)
        raise DBAPIError.instance(
            text, dict(given), error, psycopg.Error, connection_invalidated=lost, dialect=engine.dialect
        ) from error
    finally:
        pooled.close()
