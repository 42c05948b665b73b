"""A guard against a fault of kombu 5.7.0 with celery 5.7.0 on Redis.

After a connection loss with an unacknowledged message, celery closes the connection a second time when the transport's
client is gone already; the AttributeError that follows is no connection error to it, and the worker stops consuming.
Raising redis-py's own ConnectionError instead lets it reconnect. `tests/integration/test_redis_guard.py` tells when
upstream has mended it and this file can go.
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
    """Put the guard in place; more than once does no harm."""
    kombu_redis.Channel._connparams = _connparams
