"""The durable relay: history, in true commit order, into a capped Redis stream.

The cursor is in PostgreSQL and moves in the same transaction that read the events. A stream entry's id is the event's
place in commit order (`xid-position`), and Redis refuses an id that is not greater than the last: so an event that was
added before a crash is not added again after it.
"""

import json
from collections.abc import Sequence
from typing import Any

from redis import Redis
from redis.exceptions import ResponseError
from sqlalchemy import Engine, RowMapping

from db import history
from db.connect import transaction
from workflows.ids import event_name

STREAM = "interlock:events"
BATCH = 1_000
ALREADY_THERE = "The ID specified in XADD is equal or smaller"


def relay(database: Engine, redis: Redis, *, maxlen: int) -> int:
    """Carry over every event that has become visible since the last call; how many.

    Args:
        database: where history is.
        redis: where the stream `interlock:events` is.
        maxlen: entries the stream keeps, about.

    Raises:
        RedisError: Redis is away; the cursor has not moved past what it confirmed.
    """
    carried = 0
    while True:
        with transaction(database) as connection:
            after = history.cursor(connection, STREAM)
            events = history.batch(connection, after, limit=BATCH)
            if not events:
                return carried
            _add(redis, events, maxlen)
            history.advance(connection, STREAM, (events[-1]["xid"], events[-1]["position"]))
        carried += len(events)
        if len(events) < BATCH:
            return carried


def _add(redis: Redis, events: Sequence[RowMapping], maxlen: int) -> None:
    with redis.pipeline(transaction=False) as pipe:
        for event in events:
            pipe.xadd(
                STREAM,
                _fields(event),
                id=f"{event['xid']}-{event['position']}",
                maxlen=maxlen,
                approximate=True,
            )
        for answer in pipe.execute(raise_on_error=False):
            if isinstance(answer, Exception) and not _already_there(answer):
                raise answer


def _already_there(answer: Exception) -> bool:
    return isinstance(answer, ResponseError) and ALREADY_THERE in str(answer)


def _fields(event: RowMapping) -> dict[Any, Any]:
    return {
        "event_id": event_name(event["id"]),
        "workflow_id": str(event["workflow_id"]),
        "type": event["workflow_type"],
        "entity_id": event["entity_id"],
        "project_id": str(event["project_id"]),
        "seq": event["seq"],
        "from_state": event["from_state"],
        "to_state": event["to_state"],
        "trigger": event["trigger"],
        "triggered_by": event["triggered_by"] or "",
        "request_id": event["request_id"] or "",
        "severity": event["severity"],
        "metadata": json.dumps(event["metadata"]),
        "created_at": event["created_at"].isoformat(),
    }
