"""Runs statements through psycopg directly, on paths where each tenth of a millisecond counts.

SQLAlchemy's connection and result cost as much as psycopg, the parameters and the network together (0.12 ms of 0.3 a
trigger). Its pool, transactions and error classes are still used. For accepting one trigger, psycopg's cursor is left
out as well, which costs three times what its connection does (`TextStatement`).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import generators
from psycopg.errors import InvalidSqlStatementName, error_from_result
from psycopg.pq import ExecStatus, Format
from psycopg.pq.abc import PGresult
from psycopg.rows import dict_row
from sqlalchemy import Connection, Engine, PoolProxiedConnection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.util import await_only

from interlock.db.login import denied
from interlock.workflows.errors import NotYours

Row = dict[str, Any]  # by column name
Driver = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]

TEXT = 25  # PostgreSQL's oid of the type


@dataclass(frozen=True, slots=True)
class TextStatement:
    """A statement whose parameters, `$1` to the last, and whose result are texts. Each connection prepares it once."""

    name: str
    text: str
    parameters: int

    def result(self, engine: Engine, values: Sequence[str | None]) -> str | None:
        """Run it as its own transaction; returns the text of its one row. Errors as of `all_rows`.

        Args:
            engine: made with `single_statements`.
            values: the parameters.
        """
        pooled = engine.raw_connection()
        try:
            return self._run(pooled, values)
        except psycopg.Error as error:
            translated = _translated(error, pooled, engine, self.text, {})
            _abandon_unless_refused(pooled, translated)
            raise translated from error
        except BaseException as error:
            _abandon_unless_refused(pooled, error)
            raise
        finally:
            pooled.close()

    def _run(self, pooled: PoolProxiedConnection, values: Sequence[str | None]) -> str | None:
        driver: Driver = pooled.driver_connection  # type: ignore[assignment] # psycopg is our driver
        if self.name not in pooled.info:
            self._prepare(pooled, driver)
        try:
            return self._execute(driver, pooled.info[self.name], values)
        except InvalidSqlStatementName:  # somebody, or a pooler between, has dropped what was prepared; nothing was run
            self._prepare(pooled, driver)
            return self._execute(driver, pooled.info[self.name], values)

    def _prepare(self, pooled: PoolProxiedConnection, driver: Driver) -> None:
        encoding = driver.info.encoding
        driver.pgconn.send_prepare(self.name.encode(), self.text.encode(encoding), [TEXT] * self.parameters)
        _answer(driver, encoding)
        pooled.info[self.name] = encoding  # forgotten with the connection

    def _execute(self, driver: Driver, encoding: str, values: Sequence[str | None]) -> str | None:
        given = [None if value is None else value.encode(encoding) for value in values]
        # Binary, which for a text is the same bytes, but with their length: at a NUL, PostgreSQL refuses the whole.
        binary = [Format.BINARY] * self.parameters
        driver.pgconn.send_query_prepared(self.name.encode(), given, binary)
        found = _answer(driver, encoding).get_value(0, 0)
        return None if found is None else found.decode(encoding)


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
        _abandon_unless_refused(pooled, error)
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
    except BaseException as error:  # a cancelled call leaves a closed connection, as SQLAlchemy has it too
        if not isinstance(error, Exception) or (isinstance(error, DBAPIError) and error.connection_invalidated):
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


def _answer(driver: Driver, encoding: str) -> PGresult:
    """Wait for the answer to what was sent. A signal's exception cancels it, as in psycopg's own statements."""
    waited = driver.wait(generators.execute(driver.pgconn))
    found: PGresult
    (found,) = waited if isinstance(waited, list) else await_only(waited)  # in a greenlet, as `_rows`
    if found.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
        raise error_from_result(found, encoding)
    return found


def _abandon_unless_refused(pooled: PoolProxiedConnection, error: BaseException) -> None:
    """Close a connection on which a statement that a signal or a cancelled task interrupted may still be running."""
    if isinstance(error, NotYours) or (isinstance(error, DBAPIError) and not error.connection_invalidated):
        return
    pooled.invalidate(error)


@contextmanager
def _errors(pooled: PoolProxiedConnection, engine: Engine, text: str, parameters: Mapping[str, Any]) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise _translated(error, pooled, engine, text, parameters) from error


def _translated(
    error: psycopg.Error, pooled: PoolProxiedConnection, engine: Engine, text: str, parameters: Mapping[str, Any]
) -> Exception:
    """What SQLAlchemy would raise, or `NotYours`.

    If the connection is lost, the pool opens its others anew, as it does for SQLAlchemy: a server that restarts ends
    all of them, and a second attempt would meet the next.
    """
    driver: Driver = pooled.driver_connection  # type: ignore[assignment] # psycopg is our driver
    if refused := denied(error, engine.url.username):
        return refused
    if driver.closed:
        engine.pool._invalidate(pooled, error, _checkin=False)
    return DBAPIError.instance(
        text,
        dict(parameters),
        error,
        psycopg.Error,
        hide_parameters=engine.hide_parameters,
        connection_invalidated=driver.closed,
        dialect=engine.dialect,
    )
