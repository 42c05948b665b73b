"""The event bus: each move, after its commit, on Redis channel `project:{project_id}` (ADR-010). Best effort.

Whoever must not miss one reads the stream (`workers.relay`) or history itself.
"""

import json
from collections.abc import Iterable

import structlog
from redis import Redis
from redis.exceptions import RedisError

from workers.standing import Standing

log = structlog.get_logger()


class Bus:
    """Publishes moves; silent where there is no Redis."""

    def __init__(self, redis: "Redis | None") -> None:
        self._redis = redis

    def announce(self, moves: Iterable[tuple[Standing, str]]) -> None:
        """Publish the message of ADR-010 for each move; never raises: the moves are committed already."""
        if self._redis is None or not moves:
            return
        try:
            messages = [_message(standing, state) for standing, state in moves]
            if len(messages) == 1:  # a pipeline would cost a single move more than its own round trip
                self._redis.publish(*messages[0])
                return
            with self._redis.pipeline(transaction=False) as pipe:
                for channel, text in messages:
                    pipe.publish(channel, text)
                pipe.execute()
        except RedisError as error:
            log.warning("bus_unreachable", error=str(error))


def _message(standing: Standing, state: str) -> tuple[str, str]:
    body = {"type": "workflow_transition", "workflow_id": str(standing.id), "new_state": state}
    return f"project:{standing.project_id}", json.dumps(body)
