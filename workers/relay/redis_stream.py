"""The Redis stream `interlock:events`: a destination of the relay, with a limited length.

An entry's id is the event's place in commit order (`xid-position`). Redis refuses an id that is not greater than the
last, so an event that was added before a crash is not added twice.
"""

import json
from collections.abc import Sequence
from typing import Any

from redis import Redis
from redis.exceptions import ResponseError
from sqlalchemy import Connection, RowMapping

from interlock.db.core import history
from interlock.workers.relay.relay import Destination
from interlock.workflows.audit.ids import event_name

STREAM = "interlock:events"
EPOCH = 2**40  # more transactions than a server makes between a backup and the loss of its data
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

    def carry(self, connection: Connection, events: Sequence[RowMapping]) -> None:
        """Add the events; those that are already there are skipped."""
        restored = history.epochs(connection)
        with self._redis.pipeline(transaction=False) as pipe:
            for event in events:
                place = f"{named(event['xid'], restored)}-{event['position']}"
                pipe.xadd(STREAM, _fields(event), id=place, maxlen=self._maxlen, approximate=True)
            for answer in pipe.execute(raise_on_error=False):
                there = isinstance(answer, ResponseError) and ALREADY_THERE in str(answer)
                if isinstance(answer, Exception) and not there:
                    raise answer


def named(xid: int, restored: Sequence[int]) -> int:
    """A transaction id as entries use it: after a restored backup, above all ids used before the restore.

    Events that the backup contains keep their ids, so those already in the stream are not added again.

    Args:
        xid: the transaction's own id.
        restored: the first transaction id after each restore.
    """
    return xid + EPOCH * sum(first <= xid for first in restored)


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
