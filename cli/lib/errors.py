"""What went wrong beneath, in one line that says what to do. Imported when something did: drivers take their time."""

import psycopg
from kombu.exceptions import OperationalError as BrokerError
from redis.exceptions import RedisError
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from workflows.errors import InterlockError


def told(error: Exception) -> tuple[str, str] | None:
    """The kind and the words of a fault that we know; None of one that is a fault of our own."""
    match error:
        case InterlockError():
            return type(error).__name__, str(error)
        case DBAPIError() | PoolTimeout() | psycopg.Error():
            return "DatabaseError", _database(error)
        case RedisError() | BrokerError():
            says = f"the broker does not answer: {error}. Triggers can still be fired; they are applied later."
            return "BrokerError", says
        case OSError():
            return "MachineError", f"this machine refused: {error}. Look at the disk's room and at who may do what."
    return None


def _database(error: DBAPIError | PoolTimeout | psycopg.Error) -> str:
    cause = getattr(error, "orig", None) or error
    reason = str(cause).strip().splitlines()[0]
    state = getattr(cause, "sqlstate", None)
    if state == "42P01":
        return f"the database has no Interlock schema ({reason}). Run `interlock migrate`."
    if state and not state.startswith(("08", "57P", "28")):
        return f"the database refused: {reason}"
    return f"the database does not answer: {reason}. Check `interlock status` and DATABASE_URL."
