"""Tells agents that wait for a task when one is queued: one query at a time looks for all of them."""

import asyncio
from uuid import UUID

from interlock.api.inside import inside
from interlock.db.connection import transaction
from interlock.db.orchestration import claims
from interlock.workers.client.async_client import AsyncRuntime

LOOK_SECONDS = 0.1
MOST = 1_000  # tasks that one look tells apart


class Queued:
    """The queued tasks that agents take, as the last look found them, while somebody waits."""

    def __init__(self, runtime: AsyncRuntime) -> None:
        self._runtime = runtime
        self._looking: asyncio.Task[set[UUID]] | None = None

    async def changed(self, seen: set[UUID], seconds: float) -> set[UUID]:
        """Wait until a task is queued that was not `seen`; returns what is queued now.

        Args:
            seen: what was queued when the caller last asked for a task.
            seconds: how long to wait at most.
        """
        until = asyncio.get_running_loop().time() + seconds
        while True:
            found = await self._look()
            if found - seen or asyncio.get_running_loop().time() >= until:
                return found
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self) -> set[UUID]:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(inside(self._read))
        return await asyncio.shield(self._looking)

    def _read(self) -> set[UUID]:
        with transaction(self._runtime.database) as connection:
            return claims.queued_for_agents(connection, limit=MOST)
