"""Dead requests and effects get a new set of attempts."""

from sqlalchemy import Column, cast, func, update
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.sql import Update

from interlock.db.statements import functions


def revival(facts: Column[dict[str, object]], by: str, reason: str) -> Update:
    """The UPDATE that revives dead rows; those whose `facts` exceed the limits stay dead, because they fail again.

    Args:
        facts: the column that also records who did it and why (`redriven_by`, `redriven_because`).
        by, reason: who, and why; an empty reason is not recorded.
    """
    said = {"redriven_by": by} | ({"redriven_because": reason} if reason else {})
    return (
        update(facts.table)
        .where(facts.table.c.status == "dead", functions.bounded(facts))
        .values(status="pending", attempts=0, error=None, finished_at=None, not_before=func.now())
        .values({facts: facts.op("||")(cast(said, JSONB))})
    )
