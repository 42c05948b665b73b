"""Long reads of one snapshot in constant memory: several cursors in parallel, each fetching ahead."""

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from types import TracebackType
from typing import Any, Self

import psycopg
from psycopg.sql import SQL, Literal
from sqlalchemy import Engine

from interlock.db.connection import KEEP_IDLE, ONE_SNAPSHOT

AHEAD = 2_000  # rows fetched at once; as many again wait while they are looked at

KEPT = 1_000  # findings; past this, counting is enough

Connection = psycopg.Connection[Any]


@dataclass(slots=True)
class Reading:
    """How much of history was read, and how many findings there are; the first `KEPT` are kept with it."""

    instances: int = 0
    transitions: int = 0
    found: int = 0

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return self.found == 0


class Snapshot:
    """The database as it was at one instant, readable for any length of time. A context manager.

    It has no transaction id, so it does not delay the relay; it does delay VACUUM.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._opened = ExitStack()
        self._name: str | None = None

    def __enter__(self) -> Self:
        first = self.connection()
        row = first.execute("SELECT pg_export_snapshot()").fetchone()
        assert row
        self._name = row[0]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._opened.close()

    def connection(self) -> Connection:
        """A connection that sees the snapshot; returned to the pool at the end."""
        return self._opened.enter_context(_reading(self._engine, self._name))

    def rows(self, query: str, parameters: tuple[object, ...] = ()) -> Iterator[tuple[Any, ...]]:
        """A query's rows, read in binary format on a connection of their own, returned to the pool at the end."""
        rows = _rows(self._engine, self._name, query, parameters)
        self._opened.callback(rows.close)
        return rows


def _rows(
    engine: Engine, snapshot: str | None, query: str, parameters: tuple[object, ...]
) -> Generator[tuple[Any, ...], None, None]:
    with (
        _reading(engine, snapshot) as connection,
        connection.cursor(name="rows", binary=True) as cursor,
        ThreadPoolExecutor(1) as thread,
    ):
        cursor.execute(query.encode(), parameters or None)
        yield from chain.from_iterable(_ahead(cursor, thread))


def _ahead(cursor: "psycopg.ServerCursor[Any]", thread: ThreadPoolExecutor) -> Iterator[list[tuple[Any, ...]]]:
    coming = thread.submit(cursor.fetchmany, AHEAD)
    while rows := coming.result():
        coming = thread.submit(cursor.fetchmany, AHEAD)
        yield rows


@contextmanager
def _reading(engine: Engine, snapshot: str | None) -> Iterator[Connection]:
    pooled = engine.raw_connection()
    connection: Connection = pooled.driver_connection  # type: ignore[assignment] # psycopg is our driver
    try:
        connection.execute(ONE_SNAPSHOT)
        if snapshot is not None:
            connection.execute(SQL("SET TRANSACTION SNAPSHOT {}").format(Literal(snapshot)))
        # Between two fetches it idles for as long as what is read beside it takes.
        connection.execute(KEEP_IDLE)
        yield connection
    finally:
        connection.rollback()
        pooled.close()
