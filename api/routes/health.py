"""Whether the API runs, and whether it can accept anything. Both need no token, and tell nothing else."""

from fastapi import APIRouter, Request

from interlock.api.access import Access
from interlock.api.models import Health
from interlock.api.problems import UNAVAILABLE, JsonAnswer, answer, documented

router = APIRouter(tags=["health"])

ALIVE = {"status": "ok"}


@router.get("/health", response_model=Health, responses=documented())
async def health() -> JsonAnswer:
    """Whether the API runs; it looks at nothing else."""
    return JsonAnswer(ALIVE)


@router.get("/ready", response_model=Health, responses=documented())
async def ready(request: Request) -> JsonAnswer:
    """Whether triggers can be accepted: the database answers and has the schema. The broker may be away."""
    access: Access = request.app.state.access
    if await access.readiness.ready():
        return JsonAnswer(ALIVE)
    detail = "PostgreSQL does not answer, or has not this version's schema: `interlock doctor` says why."
    return answer(UNAVAILABLE, detail, headers={"Retry-After": "1"})
