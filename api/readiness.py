"""Whether PostgreSQL answers, and who waits for something long as long as it does."""

import asyncio
from collections.abc import Coroutine
from time import monotonic
from typing import Any, TypeVar

import structlog
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from interlock.api.inside import NoAnswer, inside
from interlock.db.connection import single_statements
from interlock.db.schema import in_schema
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import InterlockError

log = structlog.get_logger()
T = TypeVar("T")

SHARED_SECONDS = 1.0  # the database is asked once in this time at most, whoever asks
PATIENCE_SECONDS = 5.0
LOOK_SECONDS = 1.0
_KNOWN = in_schema("SELECT 1 FROM interlock.alembic_version")


class Readiness:
    """Whether the database answers, asked once a second at most."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime, self._asking = runtime, asyncio.Lock()
        self._ready, self._until = False, 0.0

    async def ready(self) -> bool:
        """Whether a trigger could be accepted now."""
        async with self._asking:
            if monotonic() >= self._until:
                self._ready = await self._ask()
                self._until = monotonic() + SHARED_SECONDS
            return self._ready

    async def attended(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for something that may take long, as long as the database answers others.

        Raises:
            NoAnswer: it does not; `work` is cancelled.
        """
        doing = asyncio.create_task(work)
        try:
            while not doing.done():
                await asyncio.wait({doing}, timeout=LOOK_SECONDS)
                if not doing.done() and not await self.ready() and not doing.done():
                    raise NoAnswer
        finally:
            doing.cancel()
        return doing.result()

    async def _ask(self) -> bool:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await inside(self._look)
        except (SQLAlchemyError, InterlockError, OSError, TimeoutError) as error:
            log.warning("not_ready", error=type(error).__name__)
            return False
        return True

    def _look(self) -> None:
        with single_statements(self._runtime.database) as connection:
            connection.execute(text(_KNOWN)).one()
