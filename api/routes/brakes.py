"""Brakes that are on, what they hold, their release; and the budgets that put them on: set, listed and removed."""

from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field

from interlock.api.access import Called, Caller
from interlock.api.inside import inside
from interlock.api.models import InstanceSummary, Text
from interlock.api.operating import ActReason, operate, require_operator
from interlock.api.parameters import Project
from interlock.api.problems import JsonAnswer, documented
from interlock.api.rows import list_model, many, only, row_model
from interlock.db.connection import transaction
from interlock.db.core import brakes, budgets
from interlock.db.core.brakes import BrakeRow
from interlock.db.core.budgets import BudgetRow, BudgetUse
from interlock.workers.overrides.brakes import release_brake, require_brake
from interlock.workers.overrides.budgets import Budgeted, BudgetKind, remove_budget, set_budget
from interlock.workflows.machines.governance.budget import RESOURCES

router = APIRouter(tags=["brakes"])

HELD = 20  # triggers that `show` lists, the oldest
USE = row_model(BudgetUse, without={"budget_id"})
NAMED = "an actor, or a run (its name or UUID); `x*`: each that begins with x, by itself; `*`: each. Of a project: none"


class BudgetOf(ActReason):
    """Whose use a budget counts, of what."""

    kind: BudgetKind
    name: Text = Field("", description=NAMED)
    resource: Text = Field(description=", ".join(RESOURCES))


class BudgetTerms(BudgetOf):
    """A budget to set."""

    most: Annotated[float, Field(strict=True, allow_inf_nan=False, description="whole, but of `usd`")]
    per_seconds: float | None = Field(
        None, strict=True, allow_inf_nan=False, description="in any such period; default: for good"
    )


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


@router.post("/budgets", status_code=201, response_model=InstanceSummary, responses=documented(409, 410))
async def set_new_budget(caller: Called, terms: BudgetTerms, project: Project = None) -> JsonAnswer:
    """Set a budget in place of the one of the same resource for the same, and count anew. For operators."""
    whose = await inside(_whose, caller, terms, project)
    most, seconds = terms.most, terms.per_seconds
    done = await operate(
        caller,
        project,
        terms,
        lambda runtime, why: set_budget(runtime, whose, terms.resource, why, most=most, per_seconds=seconds),
    )
    return JsonAnswer(only(InstanceSummary, done), 201)


@router.post("/budgets/remove", response_model=InstanceSummary, responses=documented(409, 410))
async def remove_set_budget(caller: Called, budget: BudgetOf, project: Project = None) -> JsonAnswer:
    """Remove a budget. A brake that it put on stays on until it is released. For operators."""
    whose = await inside(_whose, caller, budget, project)
    done = await operate(
        caller, project, budget, lambda runtime, why: remove_budget(runtime, whose, budget.resource, why)
    )
    return JsonAnswer(only(InstanceSummary, done))


def _whose(caller: Caller, budget: BudgetOf, project: str | None) -> Budgeted:
    """Whose budget it is, a run by its UUID, which is of the project; for use in a greenlet only."""
    require_operator(caller, of_project := caller.project(project))
    if budget.kind != "run" or budget.name in ("", "*"):
        return Budgeted(budget.kind, budget.name)
    run = caller.instance(budget.name, of_project, "run")["id"]
    caller.require_within(of_project, [run])
    return Budgeted("run", str(run))
