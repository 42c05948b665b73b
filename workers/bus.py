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
            with self._redis.pipeline(transaction=False) as pipe:
                for standing, state in moves:
                    message = {
                        "type": "workflow_transition",
                        "workflow_id": str(standing.id),
                        "new_state": state,
                    }
                    pipe.publish(f"project:{standing.project_id}", json.dumps(message))
                pipe.execute()
        except RedisError as error:
            log.warning("bus_unreachable", error=str(error))
