"""Django's connection as a SQLAlchemy connection, within the transaction that it is in.

That transaction stays Django's: committing, rolling back and closing do nothing here. Statements use psycopg's usual
adapters, because Django's own read JSON as text.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, Protocol, TypeGuard

import psycopg
from psycopg.adapt import AdaptersMap
from sqlalchemy import URL, Connection, Engine

from interlock.db.connection import make_engine
from interlock.workflows.errors import BadInput


class DjangoConnection(Protocol):
    """What is used of `django.db.connection`, or of another of `django.db.connections`."""

    connection: Any
    in_atomic_block: bool

    def on_commit(self, func: Callable[[], object], robust: bool = False) -> None:
        """Call `func` once the outermost `atomic` block has committed; never, if it is rolled back."""


def is_djangos(caller: object) -> TypeGuard[DjangoConnection]:
    """Whether it is Django's. Its proxy passes attributes on, which `isinstance` with a protocol need not see."""
    return hasattr(caller, "in_atomic_block")


@contextmanager
def borrowed(caller: DjangoConnection) -> Iterator[Connection]:
    """A connection for the statements of one call.

    Raises:
        BadInput: no transaction is open, so that nothing would commit together; or it is not psycopg 3's.
    """
    if not caller.in_atomic_block:
        raise BadInput("session: Django's connection is in no transaction; call this inside `transaction.atomic()`")
    if not isinstance(raw := caller.connection, psycopg.Connection):
        raise BadInput(f"session: Django's connection must be psycopg 3's, not {type(raw).__module__}'s")
    lent = _lent.set(_Lent(raw))
    try:
        with _engine(raw.info.user).connect() as connection:
            yield connection
    finally:
        _lent.reset(lent)


class _Lent:
    """A psycopg connection that leaves its transaction alone, and has adapters of its own."""

    def __init__(self, raw: "psycopg.Connection[Any]") -> None:
        self._raw = raw
        self.adapters = AdaptersMap(psycopg.adapters)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    def cursor(self) -> "psycopg.Cursor[Any]":
        as_connection: Any = self
        return psycopg.Cursor(as_connection)

    def commit(self) -> None: ...

    def rollback(self) -> None: ...

    def close(self) -> None: ...


_lent: ContextVar[_Lent] = ContextVar("_lent")


@cache
def _engine(user: str) -> Engine:
    return make_engine(URL.create("postgresql+psycopg", user), lent=_lent.get)
