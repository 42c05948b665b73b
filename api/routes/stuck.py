"""What is stuck: since when, why, and the command or request that would help."""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query

from interlock.api.access import Called
from interlock.api.cures import OfferedRequest, as_request
from interlock.api.inside import inside
from interlock.api.parameters import Asked, Limit, Project
from interlock.api.problems import JsonAnswer, documented
from interlock.api.rows import list_model, row_model
from interlock.workers.operations.stuck.detector import Stuck, survey
from interlock.workflows.errors import BadInput

router = APIRouter(tags=["stuck"])

STUCK = list_model(row_model(Stuck, request=OfferedRequest | None), total=int)


@router.get("/stuck", response_model=STUCK, responses=documented())
async def list_stuck(
    caller: Called,
    project: Project = None,
    type: Asked = None,
    all: Annotated[bool, Query(description="Everything that waits, without thresholds.")] = False,
    limit: Limit = 100,
) -> JsonAnswer:
    """List what is stuck, longest first, each with the command that helps and, where one does, the request of this API.

    `total` counts those beyond the limit, too.
    """
    known = {each.type for each in caller.access.runtime.catalogue}
    if type is not None and type not in known:
        raise BadInput(f"type: there is none {type!r}. There are: {', '.join(sorted(known))}.")

    def read() -> dict[str, Any]:
        runtime = caller.access.runtime
        found = caller.in_each(
            project, lambda of: [survey(runtime, type_=type, project=of, everything=all, limit=limit)]
        )
        rows = sorted((row for _, part in found for row in part), key=lambda row: -row.seconds)
        return {"items": [_shown(row) for row in rows[:limit]], "total": sum(total for total, _ in found)}

    return JsonAnswer(await inside(read))


def _shown(row: Stuck) -> dict[str, Any]:
    return asdict(row) | {"command": str(row.command), "request": as_request(row.command, row.project)}
