"""Hears on the event bus that something was committed (EVENT-11): sooner than a look that nobody asked for."""

import asyncio

import structlog
from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from interlock.workers.broker.pubsub import EVERY_CHANNEL

log = structlog.get_logger()


class Announcements:
    """The moves that are announced on any project's channel. One that is lost only delays.

    Args:
        url: of the bus's Redis; None: there is none, and nothing is heard.
    """

    def __init__(self, url: str | None) -> None:
        self._url = url
        self._heard: PubSub | None = None

    async def wait(self, seconds: float) -> bool:
        """Wait for an announcement that was not heard yet, for so many seconds at most; returns whether one came."""
        clock = asyncio.get_running_loop().time
        until = clock() + seconds
        if self._url is not None:
            try:
                return await self._hear(self._url, until)
            except (RedisError, OSError) as error:
                log.warning("bus_unheard", error=str(error))
                await self.close()
        await asyncio.sleep(until - clock())
        return False

    async def close(self) -> None:
        """Close the connection; the next wait opens another."""
        heard, self._heard = self._heard, None
        if heard is not None:
            await heard.aclose()  # type: ignore[no-untyped-call]
            await heard.connection_pool.aclose()

    async def _hear(self, url: str, until: float) -> bool:
        if self._heard is None:
            self._heard = Redis.from_url(url, socket_connect_timeout=1).pubsub(ignore_subscribe_messages=True)
            await self._heard.psubscribe(EVERY_CHANNEL)
        clock = asyncio.get_running_loop().time
        while await self._heard.get_message(timeout=max(0.0, until - clock())) is None:
            if clock() >= until:
                return False
        while await self._heard.get_message(timeout=0.0):
            pass
        return True
