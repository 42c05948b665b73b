"""Connections to PostgreSQL: one engine per process, made on first use, so that no fork inherits a socket."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import URL, Connection, Engine, ExceptionContext, create_engine, event
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.pool import NullPool

from interlock.db import refusals
from interlock.db.login import denied
from interlock.db.schema import lock_number
from interlock.workflows.errors import NotYours
from interlock.workflows.input.limits import loads

# SQLSTATE classes that say "the same transaction may succeed next time": connection, serialization failure, deadlock,
# lock not available, insufficient resources, operator intervention (a server going down).
RETRYABLE = ("08", "40", "55P03", "53", "57P")

JUDGED = "judged"  # the constraint that a refusal names if a move breaks a rule that only PostgreSQL can judge
ONE_SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
KEEP_IDLE = "SET LOCAL idle_in_transaction_session_timeout = 0"
TURN_LOCK = lock_number(0x1E7100)
# As in functions that run with their owner's rights (`doors.sql`). PostgreSQL plans the statements of a function anew
# whenever it is called under another search path than the last time, as a trigger is whose table both kinds write.
SEARCH_PATH = " -c search_path=pg_catalog,pg_temp"
# Whatever the login or the database has as its own: what waits for a lock reads what was committed meanwhile (LIMIT-4).
ISOLATION = r" -c default_transaction_isolation=read\ committed"
# A session keeps what it planned while tables were small: so each plan looks rows up by an index (ADR 42).
PLANS = " -c enable_seqscan=off -c jit=off"
# What a caller has abandoned by closing its connection does not run on.
CONNECTION_CHECK = " -c client_connection_check_interval=2s"
POOL_SIZE = 10  # opened when they are needed, and kept: to open one costs as much as dozens of statements


def make_engine(
    url: str | URL,
    *,
    single_statements: bool = False,
    for_asyncio: bool = False,
    lent: Callable[[], Any] | None = None,
) -> Engine:
    """An engine whose connections give up rather than hang.

    Args:
        url: `postgresql+psycopg://…`.
        single_statements: each statement is a transaction of its own, without BEGIN, COMMIT or a reset after it: one
            round trip.
        for_asyncio: on psycopg's async connections, for use in greenlets only.
        lent: returns the connection to use, each time; it is somebody else's, so none is made or kept.

    A broken connection is found when it is used, not by a ping before each use: every unit of work here is one
    transaction that may be run again (its requests carry ids), so the ping would be a round trip for nothing.
    """
    alone: dict[str, Any] = {"isolation_level": "AUTOCOMMIT", "pool_reset_on_return": None} if single_statements else {}
    options: dict[str, Any] = dict(
        **alone,
        hide_parameters=True,  # errors are logged and shown, and a parameter may be a claim's token
        use_native_hstore=False,  # no column has that type, and looking for it is one more query of each new engine
        json_deserializer=loads,  # of rows read together, one that cannot be read must not be the end of the others
        connect_args={
            "connect_timeout": 5,
            "application_name": "interlock",
            "keepalives_idle": 10,
            "options": "-c timezone=UTC -c lock_timeout=10s -c idle_in_transaction_session_timeout=60s"
            + SEARCH_PATH
            + ISOLATION
            + PLANS,
        },
    )
    if lent:
        options |= {"creator": lent, "poolclass": NullPool}
    else:  # tasks of an event loop queue for a connection by the hundred
        options |= {"pool_size": POOL_SIZE, "max_overflow": 0, "pool_timeout": 60 if for_asyncio else 10}
    if for_asyncio:
        from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415 - most processes never use it

        from interlock.db.async_connection import AbandonableConnection  # noqa: PLC0415 - likewise

        options["connect_args"] |= {
            "async_creator_fn": AbandonableConnection.connect,
            "connect_timeout": 3,  # a request may meet it twice, and is answered within ten (HTTP-24)
        }
        options["connect_args"]["options"] += CONNECTION_CHECK
        engine = create_async_engine(url, **options).sync_engine
    else:
        engine = create_engine(url, **options)
    event.listen(engine, "handle_error", _refused)
    return engine


def _refused(context: ExceptionContext) -> None:
    """Raise `NotYours` if the login may not do it."""
    error = context.original_exception
    if refused := denied(error, context.engine.url.username if context.engine else None):
        raise refused from error


@contextmanager
def transaction(engine: Engine) -> Iterator[Connection]:
    """One transaction on a pooled connection: committed at the end, rolled back on any exception.

    If it ends because somebody was refused what is not theirs, that is recorded afterwards.
    """
    try:
        with engine.begin() as connection:
            yield connection
    except NotYours as refused:
        refusals.record(engine, refused)
        raise


@contextmanager
def single_statements(engine: Engine) -> Iterator[Connection]:
    """A pooled connection on which each statement is a transaction of its own, in one round trip."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        yield connection


def one_snapshot(connection: Connection) -> None:
    """Let all statements of this transaction see what was committed before the first of them; it may not write."""
    connection.exec_driver_sql(ONE_SNAPSHOT)


def retryable(error: BaseException) -> bool:
    """Is this a fault of the infrastructure, which the same work may not meet the next time?"""
    if not isinstance(error, DBAPIError):
        return False
    state = getattr(error.orig, "sqlstate", None)
    if error.connection_invalidated or state is None:
        return isinstance(error, OperationalError | InterfaceError)
    return bool(state.startswith(RETRYABLE))


def judgement(error: BaseException | None) -> str | None:
    """Why PostgreSQL's own rules refuse a move, in its words; None: they do not, the error is a fault."""
    diagnosed = getattr(error.orig, "diag", None) if isinstance(error, DBAPIError) else None
    return diagnosed.message_primary if diagnosed and diagnosed.constraint_name == JUDGED else None


def collided(error: BaseException | None) -> bool:
    """Did PostgreSQL stop this one of several transactions that were in each other's way (deadlock, serialization)?"""
    return isinstance(error, DBAPIError) and str(getattr(error.orig, "sqlstate", None)).startswith("40")


def try_lock(connection: Connection, *number: int) -> bool:
    """Take an advisory lock until this transaction ends; False if another process has it."""
    query = f"SELECT pg_try_advisory_xact_lock({', '.join(['%s'] * len(number))})"
    return bool(connection.exec_driver_sql(query, number).scalar_one())


def take_lock(connection: Connection, number: int) -> None:
    """Take an advisory lock until this transaction ends, once nobody else has it."""
    connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%s)", (number,))


def keep_idle(connection: Connection) -> None:
    """Let this transaction wait for as long as it takes while its process does something else."""
    connection.exec_driver_sql(KEEP_IDLE)


def take_turn(connection: Connection) -> None:
    """Wait until no other transaction that collided before is under way: the second time they come one by one."""
    take_lock(connection, TURN_LOCK)
