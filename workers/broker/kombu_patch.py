"""Works around a fault of kombu 5.7.0 with celery 5.7.0 on Redis.

If the connection is lost while a message is unacknowledged, celery closes the connection a second time after the
transport's client is gone. The AttributeError that follows is not a connection error to celery, and the worker stops
consuming. Raising redis-py's own ConnectionError instead makes the worker reconnect.
`tests/integration/test_redis_guard.py` shows when upstream has fixed the fault and this file can be removed.
"""

from typing import Any

from kombu.transport import redis as kombu_redis
from redis.exceptions import ConnectionError as RedisConnectionError

_original = kombu_redis.Channel._connparams


def _connparams(channel: Any, asynchronous: bool = False) -> Any:
    transport = channel.connection
    if transport is None or getattr(transport, "client", None) is None:
        raise RedisConnectionError("the channel is closed already")
    return _original(channel, asynchronous)


def install() -> None:
    """Install the patch. Calling this again has no effect."""
    kombu_redis.Channel._connparams = _connparams
