"""The event bus: publishes each committed move on the Redis channel `project:{project}` (EVENT-11). Best effort.

Consumers that must not miss an event read the stream (`workers.relay.relay`) or history itself.
"""

import json
from collections.abc import Iterable

import structlog
from redis import Redis
from redis.exceptions import RedisError

from interlock.workers.engine.locked_instance import LockedInstance

log = structlog.get_logger()

EVERY_CHANNEL = "project:*"  # as a pattern


class Bus:
    """Publishes moves; does nothing without Redis."""

    def __init__(self, redis: "Redis | None") -> None:
        self._redis = redis

    def announce(self, moves: Iterable[tuple[LockedInstance, str]]) -> None:
        """Publish the message of EVENT-11 for each move. Never raises: the moves are already committed."""
        if self._redis is None or not moves:
            return
        try:
            messages = [_message(locked, state) for locked, state in moves]
            if len(messages) == 1:  # for a single move, a pipeline costs more than a plain round trip
                self._redis.publish(*messages[0])
                return
            with self._redis.pipeline(transaction=False) as pipe:
                for channel, text in messages:
                    pipe.publish(channel, text)
                pipe.execute()
        except RedisError as error:
            log.warning("bus_unreachable", error=str(error))


def _message(locked: LockedInstance, state: str) -> tuple[str, str]:
    body = {"type": "workflow_transition", "workflow_id": str(locked.id), "new_state": state}
    return f"project:{locked.project}", json.dumps(body)
