"""Statements: a module's longer ones, and those that take rows, as one JSON parameter `%(rows)s`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from pydantic_core import to_json
from sqlalchemy import ARRAY, Column, ColumnElement, Connection, Select, any_, func, literal

from interlock.db.fast_path import Row, rows
from interlock.db.schema import SCHEMA, in_schema
from interlock.workflows.errors import UnknownInstance

Rows = Sequence[Mapping[str, Any]]
Q = TypeVar("Q", bound=Select[Any])
functions = getattr(func, SCHEMA)  # `functions.bounded(…)`: a function of ours in an expression of SQLAlchemy's


def queries(module: str) -> Callable[[str], str]:
    """The statements of a module that stand in files beside it: `sql = queries(__file__)`, then `sql("accept")`.

    Those of `db/core/requests.py` are in `db/core/sql/requests/`, with psycopg's `%(name)s` parameters. Each is read
    once, for the chosen schema.
    """
    directory = Path(module).parent / "sql" / Path(module).stem
    return cache(lambda name: in_schema((directory / f"{name}.sql").read_text()))


def execute(connection: Connection, statement: str, rows: Rows) -> int:
    """Run a statement on `rows`, in one round trip; the number of rows it wrote."""
    return connection.exec_driver_sql(statement, {"rows": as_json(rows)}).rowcount if rows else 0


def returning(connection: Connection, statement: str, given: Rows) -> list[Row]:
    """Run a statement on the rows `given`; the rows it returns."""
    return rows(connection, statement, {"rows": as_json(given)}) if given else []


def first(connection: Connection, statement: str, parameters: Mapping[str, Any]) -> Row | None:
    """The first row that a statement returns; None: there is none."""
    return next(iter(rows(connection, statement, parameters)), None)


def one(connection: Connection, statement: str, id_: UUID, what: str) -> Row:
    """The row that a statement returns for an id. Raises `UnknownInstance` if there is none: no `what` has it."""
    if (found := first(connection, statement, {"id": id_})) is None:
        raise UnknownInstance(f"no {what} has the id {id_}")
    return found


def as_json(rows: Rows) -> str:
    """Rows as one JSON array; UUIDs and instants become texts. Pydantic writes it in a tenth of `json`'s time."""
    return to_json(rows).decode()


def matching(query: Q, *wanted: tuple[Column[Any], Any]) -> Q:
    """The query for rows with these values in these columns; a value that is None or empty is not asked for."""
    return query.where(*(column == value for column, value in wanted if value))


def among(column: Column[Any], values: Iterable[Any]) -> ColumnElement[bool]:
    """`column = ANY(values)`: one array parameter for any number of values, unlike IN."""
    return column == any_(literal(list(values), ARRAY(column.type)))


def among_found(column: Column[Any], query: Select[Any]) -> ColumnElement[bool]:
    """`column = ANY(ARRAY(query))`: IN may run its query again for each row, and a LIMIT in it then bounds nothing."""
    return column == any_(func.array(query.scalar_subquery()))
