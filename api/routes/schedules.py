"""Schedules: create, list and show them. They are paused, resumed and ended by triggers, as any instance is moved."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from interlock.api.access import Called, Caller
from interlock.api.inside import inside
from interlock.api.models import ScheduleList, ScheduleSummary, Taken, Text
from interlock.api.parameters import Project
from interlock.api.problems import JsonAnswer, documented
from interlock.workers.schedules import creating
from interlock.workers.schedules.creating import Standing
from interlock.workflows.errors import BadInput

router = APIRouter(tags=["schedules"])

FIELDS = ScheduleSummary.model_fields


class FiredBySchedule(Taken):
    """A trigger that a schedule fires."""

    instance: Text = Field(description="its UUID; or TYPE/ENTITY_ID or an entity id")
    trigger: Text
    data: dict[str, Any] = Field({})


class CreatedBySchedule(Taken):
    """An instance that a schedule creates."""

    type: Text
    name: Text = Field(description="`%due` in it becomes the time")
    context: dict[str, Any] = Field({})


class NewSchedule(Taken):
    """A schedule to create. It acts in the name of the token."""

    name: Text = Field(examples=["standup"], description="unique in the project")
    project: Text | None = Field(None, description="default: the token's only project")
    times: dict[str, Any] = Field(
        examples=[{"cron": "0 9 * * 1-5", "time_zone": "Europe/Berlin"}, {"every_seconds": 900}]
    )
    fire: FiredBySchedule | None = None
    create: CreatedBySchedule | None = None
    catch_up: dict[str, Any] | None = Field(None, examples=[{"policy": "skip"}])


@router.get("/schedules", response_model=ScheduleList, responses=documented())
async def list_schedules(
    caller: Called, project: Project = None, ended: Annotated[bool, Query(description="Also those that have.")] = False
) -> JsonAnswer:
    """List schedules, each with its next time."""

    def read() -> list[dict[str, Any]]:
        client = caller.access.client(caller.principal, caller.access.runtime.settings.project)
        return [*map(_shown, caller.in_each(project, lambda of: creating.standings(client, of, ended=ended)))]

    return JsonAnswer({"items": await inside(read)})


@router.post("/schedules", status_code=201, response_model=ScheduleSummary, responses=documented(409))
async def create_schedule(caller: Called, wanted: NewSchedule) -> JsonAnswer:
    """Create a schedule that fires a trigger or creates an instance, each time once."""
    return JsonAnswer(await inside(_created, caller, wanted), 201)


def _created(caller: Caller, wanted: NewSchedule) -> dict[str, Any]:
    client = caller.client(wanted.project, write=True)
    if (wanted.fire is None) == (wanted.create is None):
        raise BadInput("give one of fire and create")
    if wanted.fire is not None:
        with caller.located(wanted.fire.instance, client.project) as (_, ref):
            does = creating.firing(client, ref, wanted.fire.trigger, data=wanted.fire.data)
    else:
        assert wanted.create is not None
        does = {"create": wanted.create.model_dump()}
    by = caller.principal.name
    made = creating.create_schedule(client, wanted.name, wanted.times, does, by=by, catch_up=wanted.catch_up)
    return _shown(creating.standing(client, made["id"]))


@router.get("/schedules/{ref:path}", response_model=ScheduleSummary, responses=documented(409))
async def show_schedule(caller: Called, ref: str, project: Project = None) -> JsonAnswer:
    """Show a schedule, and its next times. REF is its name in the project, or its UUID."""

    def read() -> dict[str, Any]:
        with caller.located(ref, project) as (client, found):
            return _shown(creating.standing(client, found))

    return JsonAnswer(await inside(read))


def _shown(found: Standing) -> dict[str, Any]:
    return {name: found.following if name == "following" else found.row[name] for name in FIELDS}
