"""Run the named statements of `db/sql`: rows in as one JSON parameter, rows out as mappings."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import ARRAY, Column, ColumnElement, Connection, RowMapping, any_, literal

from interlock.db.connection import sql

Rows = Sequence[Mapping[str, Any]]


def execute(connection: Connection, name: str, rows: Rows) -> int:
    """Run `db/sql/NAME.sql` on `rows`, in one round trip; the number of rows it wrote."""
    return connection.exec_driver_sql(sql(name), {"rows": as_json(rows)}).rowcount if rows else 0


def returning(connection: Connection, name: str, rows: Rows) -> Sequence[RowMapping]:
    """Run `db/sql/NAME.sql` on `rows`; the rows it returns."""
    if not rows:
        return []
    return connection.exec_driver_sql(sql(name), {"rows": as_json(rows)}).mappings().all()


def as_json(rows: Rows) -> str:
    """Rows as one JSON array."""
    return json.dumps(rows, default=str, separators=(",", ":"))  # str: UUIDs and instants


def among(column: Column[Any], values: Iterable[Any]) -> ColumnElement[bool]:
    """`column = ANY(values)`: one array parameter however many values, unlike IN."""
    return column == any_(literal(list(values), ARRAY(column.type)))
