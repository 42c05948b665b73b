"""Records what somebody was refused, once the refused transaction is over (docs/spec/refusals.md)."""

from contextlib import suppress

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from interlock.db.schema import in_schema
from interlock.db.statements import as_json
from interlock.workflows.errors import InterlockError, NotYours

_RECORD = in_schema("SELECT interlock.record_refusal(%(function)s, %(rows)s::json)")


def record(engine: Engine, refused: NotYours) -> None:
    """Record a refusal in a transaction of its own, if PostgreSQL confirms it; otherwise do nothing.

    It never raises: the caller is owed the refusal, and an event that cannot be written must not hide it.

    Args:
        engine: of the login that was refused.
        refused: the refusal. Its `attempt` is taken, so that it is recorded once.
    """
    attempt, refused.attempt = refused.attempt, None
    if attempt is not None:
        given = {"function": attempt.function, "rows": as_json(attempt.rows)}
        with suppress(SQLAlchemyError, InterlockError), engine.begin() as connection:
            connection.exec_driver_sql(_RECORD, given)
