"""Triggers: fire one or many, exactly once each, and wait for what becomes of them."""

from datetime import datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import AwareDatetime, Field

from interlock.api.access import Called, Caller, only_of
from interlock.api.inside import inside
from interlock.api.models import Taken, Text, TriggerReceipt, TriggerReceipts, Whole
from interlock.api.outcomes import ACCEPTED, shown, told
from interlock.api.parameters import WAIT_SECONDS, IdempotencyKey, Wait, one_key
from interlock.api.problems import JsonAnswer, documented
from interlock.db.connection import transaction
from interlock.db.core import instances, requests
from interlock.workers.client.operations import FiredRow, fired, fired_as_known, traced
from interlock.workers.client.receipts import Receipt, receipt
from interlock.workers.engine.trigger_request import Firing
from interlock.workflows.errors import BadInput, UnknownInstance

router = APIRouter(tags=["triggers"])

MANY = 1_000
CENTURY_SECONDS = 36_525 * 86_400.0
AT_ONCE = 100  # requests that one call waits for


class TriggerOrder(Taken):
    """A trigger to fire. The actor is the token's."""

    instance: Text = Field(examples=["story/S-1"], description="its UUID; or TYPE/ENTITY_ID or an entity id")
    trigger: Text = Field(examples=["design_complete"])
    request_id: Text = Field("", description="the idempotency key: the same again fires once; default: a new one")
    data: dict[str, Any] = Field({}, description="kept in the event")
    after_seconds: float | None = Field(None, ge=0, le=CENTURY_SECONDS, description="apply it no earlier than so")
    not_before: AwareDatetime | None = Field(None, description="apply it no earlier than at this instant")
    if_version: Whole | None = Field(None, description="apply it only if the instance is at this version then")
    proof: Text = Field("", description="of a claim's holder (`claim:TOKEN`) or of a worker (`secret:SECRET`)")

    def firing(self, ref: Any, by: str, request_id: str) -> Firing:
        """The order as the Python client takes it."""
        if self.after_seconds is not None and self.not_before is not None:
            raise BadInput("give after_seconds or not_before")
        after: datetime | timedelta | None = self.not_before
        if self.after_seconds is not None:
            after = timedelta(seconds=self.after_seconds)
        return Firing(ref, self.trigger, by, request_id, self.data, after, self.proof, self.if_version)


class TriggerOrderIn(TriggerOrder):
    """A trigger to fire on an instance of a project."""

    project: Text | None = Field(None, description="in which it is looked up; default: the token's only project")


class TriggerOrders(Taken):
    """Triggers to fire in order, in one project."""

    project: Text | None = Field(None, description="default: the token's only project")
    triggers: list[TriggerOrder] = Field(max_length=MANY)


@router.post("/triggers", response_model=TriggerReceipt, responses=ACCEPTED | documented(409, 410))
async def fire_trigger(
    caller: Called, order: TriggerOrderIn, key: IdempotencyKey = None, wait: Wait = WAIT_SECONDS
) -> JsonAnswer:
    """Fire a trigger, and wait a moment for its outcome. It is accepted, exactly once, also if that takes longer."""

    def checked() -> tuple[str, FiredRow]:
        with caller.located(order.instance, order.project, write=True) as (client, ref):
            firing = order.firing(ref, caller.principal.name, one_key(order.request_id, key))
            return client.project, fired(client, firing)

    found = _as_known(caller, order, key)
    project, row = await inside(checked) if found is None else found
    with only_of(project, order.instance), traced([row]):
        receipt = await caller.access.acceptances.ask(row)
    if receipt.replayed:  # PostgreSQL has judged the token only of what is new
        await caller.still()
    (outcome,) = await caller.outcomes([receipt], wait, just_fired=True)
    return told(outcome)


@router.post("/triggers/batch", status_code=202, response_model=TriggerReceipts, responses=documented(409, 410))
async def fire_triggers(caller: Called, orders: TriggerOrders) -> JsonAnswer:
    """Fire up to 1,000 triggers in one commit: all are accepted, or none."""

    def fire() -> list[Receipt]:
        client = caller.client(orders.project, write=True)
        refs = [instances.as_uuid(each.instance) or each.instance for each in orders.triggers]
        caller.require_within(client.project, [each for each in refs if isinstance(each, UUID)])
        by = caller.principal.name
        firings = [each.firing(ref, by, each.request_id) for each, ref in zip(orders.triggers, refs, strict=True)]
        try:
            return client.fire_many(firings)
        except UnknownInstance as unknown:
            raise UnknownInstance(f"One of the instances is not in project {client.project!r}.") from unknown

    return JsonAnswer({"items": [shown(each) for each in await inside(fire)]}, 202)


@router.get("/requests", response_model=TriggerReceipts, responses=documented())
async def wait_for_requests(
    caller: Called,
    id: Annotated[list[Text], Query(min_length=1, max_length=AT_ONCE, description="A request_id; repeat it.")],
    wait: Wait = 0.0,
) -> JsonAnswer:
    """Wait until triggers are applied, refused, held or dead; those that are not in time come as they are."""
    found = await inside(_known, caller, id)
    outcomes = await caller.outcomes(found, wait, just_fired=False)
    return JsonAnswer({"items": [shown(each) for each in outcomes]})


@router.get("/requests/{request_id:path}", response_model=TriggerReceipt, responses=documented())
async def show_request(caller: Called, request_id: Text, wait: Wait = 0.0) -> JsonAnswer:
    """Show an accepted trigger, and its outcome as soon as there is one."""
    (outcome,) = await caller.outcomes(await inside(_known, caller, [request_id]), wait, just_fired=False)
    return JsonAnswer(shown(outcome))


def _as_known(caller: Caller, order: TriggerOrderIn, key: str | None) -> tuple[str, FiredRow] | None:
    """An instance's project and the row of a trigger for it, as remembered; None if PostgreSQL is to be asked first."""
    id_ = instances.as_uuid(order.instance)
    if id_ is None or not caller.access.remembers(id_):
        return None
    client = caller.client(ref=id_, write=True)  # asks nothing either: what is remembered is enough
    row = fired_as_known(client, order.firing(id_, caller.principal.name, one_key(order.request_id, key)))
    return None if row is None else (client.project, row)


def _known(caller: Caller, request_ids: list[str]) -> list[Receipt]:
    """The receipts of requests. Raises `UnknownInstance` if the token may not see one of them, or there is none."""
    with transaction(caller.access.runtime.database) as connection:
        found = requests.by_ids(connection, request_ids)
    projects = caller.access.projects_of({row["workflow_id"] for row in found.values()})
    seen = {name for name, row in found.items() if caller.principal.may_read(projects[row["workflow_id"]])}
    if missing := [each for each in request_ids if each not in seen]:
        raise UnknownInstance(f"There is no request {missing[0]!r} in the projects of this token.")
    return [receipt(found[each]) for each in request_ids]
