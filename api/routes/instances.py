"""Instances: create, list and show them, and read their verified history."""

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from interlock.api.access import Called, Caller
from interlock.api.inside import inside
from interlock.api.models import EventPage, HistoryEvent, InstanceDetail, InstanceSummary, Taken, Text
from interlock.api.paging import Paging
from interlock.api.parameters import Asked, Limit, Project, page
from interlock.api.problems import JsonAnswer, creating, documented
from interlock.api.rows import only, page_model
from interlock.db.audit.verify import Problem
from interlock.db.connection import transaction
from interlock.db.core import instances
from interlock.db.core.history import EventRow
from interlock.db.core.instances import InstanceRow
from interlock.workflows.audit.ids import event_name
from interlock.workflows.errors import AlreadyExists

router = APIRouter(tags=["instances"])


class NewInstance(Taken):
    """An instance to create."""

    type: Text = Field(examples=["story"], description="its machine; `TYPE@VERSION` for an older version")
    entity_id: Text = Field(examples=["S-1"], description="its name, unique in the project for its type")
    project: Text | None = Field(None, description="default: the token's only project")
    context: dict[str, Any] = Field({}, description="data that guards may read; fixed")


@router.get("/instances", response_model=page_model(InstanceSummary), responses=documented())
async def list_instances(
    paging: Paging,
    type: Asked = None,
    state: Asked = None,
    name: Annotated[Asked, Query(description="The entity id.")] = None,
) -> JsonAnswer:
    """List instances, newest first, of one project or of all that the token covers."""
    states = [state] if state else ()
    return await paging.page(instances.page, partial(only, InstanceSummary), type_=type, name=name, states=states)


@router.post("/instances", **creating(InstanceSummary, "It was there already"))
async def create_instance(caller: Called, wanted: NewInstance) -> JsonAnswer:
    """Create an instance. Its name is its idempotency key: the same again answers 200 with what was created."""
    made, new = await inside(_created, caller, wanted)
    return JsonAnswer(only(InstanceSummary, made), 201 if new else 200)


def _created(caller: Caller, wanted: NewInstance) -> tuple[InstanceRow, bool]:
    client = caller.client(wanted.project, write=True)
    by, context = caller.principal.name, wanted.context
    birth = client.birth(wanted.type, wanted.entity_id, context=context, by=by)
    try:
        return client.create(wanted.type, wanted.entity_id, context=context, by=by), True
    except AlreadyExists:
        with transaction(client.runtime.database) as connection:
            found = instances.find(connection, f"{birth.definition.type}/{wanted.entity_id}", client.project)
        asked = (by, birth.definition.version, birth.context)
        if (found["created_by"], found["born_version"], found["context"]) != asked:
            raise
        return found, False


@router.get("/instances/{ref:path}", response_model=InstanceDetail, responses=documented(409))
async def show_instance(caller: Called, ref: str, project: Project = None) -> JsonAnswer:
    """Show an instance: state, legal triggers and what they lack, links; its history is verified.

    REF is its UUID, `TYPE/ENTITY_ID`, or an entity id that only one instance of the project has.
    """

    def read() -> dict[str, Any]:
        with caller.located(ref, project) as (client, found):
            return caller.shown(client, found)

    shown = await inside(read)
    return JsonAnswer(only(InstanceDetail, shown | _verdict(await caller.verified(str(shown["id"]), None))))


@router.get("/history/{ref:path}", response_model=EventPage, responses=documented(409))
async def show_history(
    caller: Called,
    ref: str,
    project: Project = None,
    after: Annotated[int, Query(ge=0, le=2**31 - 1, description="`next` of the page before this one.")] = 0,
    limit: Limit = 50,
) -> JsonAnswer:
    """Read every move of an instance, oldest first. The whole history is verified, whichever page is read."""

    def read() -> dict[str, Any]:
        with caller.located(ref, project) as (client, found):
            events = [_event(each) for each in client.history(found, after_seq=after, limit=limit + 1)]
            return page(events, limit, "seq")

    events = await inside(read)
    return JsonAnswer(events | _verdict(await caller.verified(ref, project)))


def _event(row: EventRow) -> dict[str, Any]:
    return only(HistoryEvent, dict(row) | {"event_id": event_name(row["id"])})


def _verdict(problems: tuple[Problem, ...] | None) -> dict[str, Any]:
    return {
        "verified": None if problems is None else not problems,
        "problems": [each.message for each in problems or ()],
    }
