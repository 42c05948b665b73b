"""Limits on what runs at once or starts in a period: set, listed and removed."""

from typing import Any

from fastapi import APIRouter
from pydantic import Field

from interlock.api.access import Called
from interlock.api.inside import inside
from interlock.api.models import InstanceSummary, Text, Whole
from interlock.api.operating import ActReason, operate
from interlock.api.parameters import Limit, Project
from interlock.api.problems import JsonAnswer, documented
from interlock.api.rows import list_model, many, only, row_model
from interlock.db.connection import transaction
from interlock.db.core import limits
from interlock.db.core.limits import LimitRow, LimitUse
from interlock.workers.overrides.limits import Kind, LimitedName, remove_limit, set_limit

router = APIRouter(tags=["limits"])

COUNTED = 1_000  # of what waits for one, no more is counted
USE = row_model(LimitUse, without={"limit_id", "project", "kind", "pattern"})


class LimitOn(ActReason):
    """What a limit counts."""

    kind: Kind
    name: Text = Field(
        "", description="of the type, tool or key; `x*`: each that begins with x, by itself. Of a project: none"
    )

    @property
    def counted(self) -> LimitedName:
        """The same, of the project that it is asked for in."""
        return LimitedName(self.kind, self.name)


class LimitTerms(LimitOn):
    """A limit to set: on how much may run at once, how much may start in a period, or both."""

    at_once: Whole | None = None
    starts: Whole | None = Field(None, description="in any period of `per_seconds`")
    per_seconds: float | None = Field(None, strict=True, allow_inf_nan=False)


@router.get("/limits", response_model=list_model(row_model(LimitRow, uses=many(USE))), responses=documented())
async def list_limits(caller: Called, project: Project = None, limit: Limit = 100) -> JsonAnswer:
    """List limits: the terms; by name, how much runs or has started, how much may start, and how much waits."""

    def read() -> list[Any]:
        with transaction(caller.access.runtime.database) as connection:
            found = caller.in_each(project, lambda of: limits.listed(connection, project=of, most=limit))[:limit]
            used = limits.with_uses(connection, found, most=COUNTED)
        return [{**row, "uses": [only(USE, use) for use in row["uses"]]} for row in used]

    return JsonAnswer({"items": await inside(read)})


@router.post("/limits", status_code=201, response_model=InstanceSummary, responses=documented(409))
async def set_new_limit(caller: Called, terms: LimitTerms, project: Project = None) -> JsonAnswer:
    """Set a limit in place of the one of the same name. What runs already goes on, and counts. For operators."""
    most, starts, seconds = terms.at_once, terms.starts, terms.per_seconds
    done = await operate(
        caller,
        project,
        terms,
        lambda runtime, why: set_limit(
            runtime, terms.counted, why, at_once_most=most, starts=starts, per_seconds=seconds
        ),
    )
    return JsonAnswer(only(InstanceSummary, done), 201)


@router.post("/limits/remove", response_model=InstanceSummary, responses=documented(409))
async def remove_set_limit(caller: Called, limit: LimitOn, project: Project = None) -> JsonAnswer:
    """Remove a limit. What waited for it starts within a second. For operators."""
    done = await operate(caller, project, limit, lambda runtime, why: remove_limit(runtime, limit.counted, why))
    return JsonAnswer(only(InstanceSummary, done))
