"""Brakes that are on, what they hold, their release; and the budgets that put them on."""

from typing import Any

from fastapi import APIRouter

from interlock.api.access import Called
from interlock.api.inside import inside
from interlock.api.models import InstanceSummary, Text
from interlock.api.operating import ActReason, operate
from interlock.api.parameters import Project
from interlock.api.problems import JsonAnswer, documented
from interlock.api.rows import list_model, many, only, row_model
from interlock.db.connection import transaction
from interlock.db.core import brakes, budgets
from interlock.db.core.brakes import BrakeRow
from interlock.db.core.budgets import BudgetRow, BudgetUse
from interlock.workers.overrides.brakes import release_brake, require_brake

router = APIRouter(tags=["brakes"])

HELD = 20  # triggers that `show` lists, the oldest
USE = row_model(BudgetUse, without={"budget_id"})


@router.get("/brakes", response_model=list_model(row_model(BrakeRow)), responses=documented())
async def list_brakes(caller: Called, project: Project = None) -> JsonAnswer:
    """List the brakes that are on: what each holds, since when and why."""

    def read() -> list[Any]:
        with transaction(caller.access.runtime.database) as connection:
            return caller.in_each(project, lambda of: brakes.listed(connection, project=of))

    return JsonAnswer({"items": await inside(read)})


@router.get("/brakes/{name}", response_model=row_model(BrakeRow, requests=list[dict[str, Any]]), responses=documented())
async def show_brake(caller: Called, name: Text, project: Project = None) -> JsonAnswer:
    """Show a brake that is on, with the oldest triggers that it holds."""
    of_project = caller.project(project)

    def read() -> dict[str, Any]:
        with transaction(caller.access.runtime.database) as connection:
            found = require_brake(connection, name, of_project)
            return {**found, "requests": brakes.held(connection, found["brake_id"], limit=HELD)}

    return JsonAnswer(await inside(read))


@router.post("/brakes/{name}/release", response_model=InstanceSummary, responses=documented(409))
async def release_held(caller: Called, name: Text, order: ActReason, project: Project = None) -> JsonAnswer:
    """Release a brake: what it held goes on, in the order accepted, and its budget counts anew. For operators."""
    done = await operate(caller, project, order, lambda runtime, why: release_brake(runtime, name, why))
    return JsonAnswer(only(InstanceSummary, done))


@router.get("/budgets", response_model=list_model(row_model(BudgetRow, uses=many(USE))), responses=documented())
async def list_budgets(caller: Called, project: Project = None) -> JsonAnswer:
    """List budgets: the terms, what is used by whom, and whether a brake is on for it."""

    def read() -> list[Any]:
        with transaction(caller.access.runtime.database) as connection:
            found = caller.in_each(project, lambda of: budgets.listed(connection, project=of))
            used = budgets.with_uses(connection, found)
        return [{**row, "uses": [only(USE, use) for use in row["uses"]]} for row in used]

    return JsonAnswer({"items": await inside(read)})
