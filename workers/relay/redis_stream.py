"""The Redis stream `interlock:events`: a destination of the relay, with a limited length.

An entry's id is the event's place in commit order (`xid-position`). Redis refuses an id that is not greater than the
last, so an event that was added before a crash is not added twice. Each entry names the one before it (`after`): by
that a reader notices what was trimmed, or lost with Redis.
"""

import json
from collections.abc import Sequence
from typing import Any

from redis import Redis
from redis.exceptions import ResponseError
from sqlalchemy import Connection, RowMapping

from interlock.db.core import history
from interlock.workers.broker.event_stream import STREAM, entry_id
from interlock.workers.relay.relay import Destination, Place
from interlock.workflows.audit.cursors import named
from interlock.workflows.audit.ids import event_name

ALREADY_THERE = "The ID specified in XADD is equal or smaller"


class Stream(Destination):
    """Every event, in commit order, for readers of the stream. Without Redis, `RedisError` is raised; the cursor stays.

    Args:
        redis: the server of the stream.
        maxlen: approximately how many entries it keeps.
    """

    name = STREAM

    def __init__(self, redis: "Redis", *, maxlen: int) -> None:
        self._redis, self._maxlen = redis, maxlen
        self._after: Place = (0, 0)

    def position(self, connection: Connection, cursor: Place) -> Place:
        """The cursor: the entries to come follow that event."""
        self._after = cursor
        return cursor

    def carry(self, connection: Connection, events: Sequence[RowMapping]) -> None:
        """Add the events; those that are already there are skipped."""
        restored = history.epochs(connection)
        after = entry_id((named(self._after[0], restored), self._after[1]))
        with self._redis.pipeline(transaction=False) as pipe:
            for event in events:
                place = entry_id((named(event["xid"], restored), event["position"]))
                pipe.xadd(STREAM, _fields(event) | {"after": after}, id=place, maxlen=self._maxlen, approximate=True)
                after = place
            for answer in pipe.execute(raise_on_error=False):
                there = isinstance(answer, ResponseError) and ALREADY_THERE in str(answer)
                if isinstance(answer, Exception) and not there:
                    raise answer


def _fields(event: RowMapping) -> dict[Any, Any]:
    return {
        "event_id": event_name(event["id"]),
        "workflow_id": str(event["workflow_id"]),
        "type": event["workflow_type"],
        "entity_id": event["entity_id"],
        "project": str(event["project"]),
        "seq": event["seq"],
        "from_state": event["from_state"],
        "to_state": event["to_state"],
        "trigger": event["trigger"],
        "triggered_by": event["triggered_by"] or "",
        "request_id": event["request_id"] or "",
        "severity": event["severity"],
        "named_event": event["named_event"] or "",
        "metadata": json.dumps(event["metadata"]),
        "created_at": event["created_at"].isoformat(),
    }
