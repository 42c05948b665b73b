"""Limits on what runs at once or starts in a period."""

from typing import Any

from fastapi import APIRouter

from interlock.api.access import Called
from interlock.api.inside import inside
from interlock.api.parameters import Limit, Project
from interlock.api.problems import JsonAnswer, documented
from interlock.api.rows import list_model, many, only, row_model
from interlock.db.connection import transaction
from interlock.db.core import limits
from interlock.db.core.limits import LimitRow, LimitUse

router = APIRouter(tags=["limits"])

COUNTED = 1_000  # of what waits for one, no more is counted
USE = row_model(LimitUse, without={"limit_id", "project", "kind", "pattern"})


@router.get("/limits", response_model=list_model(row_model(LimitRow, uses=many(USE))), responses=documented())
async def list_limits(caller: Called, project: Project = None, limit: Limit = 100) -> JsonAnswer:
    """List limits: the terms; by name, how much runs or has started, how much may start, and how much waits."""

    def read() -> list[Any]:
        with transaction(caller.access.runtime.database) as connection:
            found = caller.in_each(project, lambda of: limits.listed(connection, project=of, most=limit))[:limit]
            used = limits.with_uses(connection, found, most=COUNTED)
        return [{**row, "uses": [only(USE, use) for use in row["uses"]]} for row in used]

    return JsonAnswer({"items": await inside(read)})
