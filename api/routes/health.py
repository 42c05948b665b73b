"""Whether the API runs, and whether it can accept anything. Both need no token, and tell nothing else."""

import asyncio
from time import monotonic

import structlog
from fastapi import APIRouter, Request
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from interlock.api.access import Access
from interlock.api.inside import inside
from interlock.api.models import Health
from interlock.api.problems import UNAVAILABLE, JsonAnswer, answer, documented
from interlock.db.connection import single_statements
from interlock.db.schema import in_schema
from interlock.workflows.errors import InterlockError

log = structlog.get_logger()
router = APIRouter(tags=["health"])

ALIVE = {"status": "ok"}
SHARED_SECONDS = 1.0  # the database is asked once in this time at most, whoever asks
PATIENCE_SECONDS = 5.0
_KNOWN = in_schema("SELECT 1 FROM interlock.alembic_version")


class Readiness:
    """Whether the database answers, asked once a second at most."""

    def __init__(self, access: Access) -> None:
        self._access, self._asking = access, asyncio.Lock()
        self._ready, self._until = False, 0.0

    async def ready(self) -> bool:
        """Whether a trigger could be accepted now."""
        async with self._asking:
            if monotonic() >= self._until:
                self._ready = await self._ask()
                self._until = monotonic() + SHARED_SECONDS
            return self._ready

    async def _ask(self) -> bool:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await inside(self._look)
        except (SQLAlchemyError, InterlockError, OSError, TimeoutError) as error:
            log.warning("not_ready", error=type(error).__name__)
            return False
        return True

    def _look(self) -> None:
        with single_statements(self._access.runtime.database) as connection:
            connection.execute(text(_KNOWN)).one()


@router.get("/health", response_model=Health, responses=documented())
async def health() -> JsonAnswer:
    """Whether the API runs; it looks at nothing else."""
    return JsonAnswer(ALIVE)


@router.get("/ready", response_model=Health, responses=documented())
async def ready(request: Request) -> JsonAnswer:
    """Whether triggers can be accepted: the database answers and has the schema. The broker may be away."""
    readiness: Readiness = request.app.state.readiness
    if await readiness.ready():
        return JsonAnswer(ALIVE)
    return answer(UNAVAILABLE, "`interlock doctor` says why.", headers={"Retry-After": "1"})
