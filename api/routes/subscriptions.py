"""Subscriptions: where events are delivered to, how far each is behind, and a replay."""

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import AwareDatetime, BaseModel, Field

from interlock.api.access import Called
from interlock.api.inside import inside
from interlock.api.models import Text
from interlock.api.operating import ActReason, operate_on
from interlock.api.parameters import Project
from interlock.api.problems import JsonAnswer, documented
from interlock.api.rows import list_model, row_model
from interlock.db.connection import transaction
from interlock.db.core import subscriptions
from interlock.db.core.subscriptions import SubscriptionRow
from interlock.workers.overrides.subscriptions import TYPE, replay_events
from interlock.workflows.errors import BadInput

router = APIRouter(tags=["subscriptions"])


class ReplayOrder(ActReason):
    """From where to deliver again."""

    event: Text | None = Field(None, description="the id of the first event: `evt_…`")
    since: AwareDatetime | None = Field(None, description="or an instant: the first event since then")


class ReplayStarted(BaseModel):
    """A replay: so many events are delivered again, or passed over because they are not wanted."""

    subscription: UUID
    events: int


@router.get("/subscriptions", response_model=list_model(row_model(SubscriptionRow)), responses=documented())
async def list_subscriptions(
    caller: Called,
    project: Project = None,
    removed: Annotated[bool, Query(description="Also those that were removed.")] = False,
) -> JsonAnswer:
    """List subscriptions: where and what each delivers, how far it is behind, and since when its endpoint fails."""

    def read() -> list[Any]:
        with transaction(caller.access.runtime.database) as connection:
            return caller.in_each(project, lambda of: subscriptions.listed(connection, project=of, removed=removed))

    return JsonAnswer({"items": await inside(read)})


@router.post("/subscriptions/{ref:path}/replay", response_model=ReplayStarted, responses=documented(409, 410))
async def replay_subscription(caller: Called, ref: Text, order: ReplayOrder, project: Project = None) -> JsonAnswer:
    """Deliver events again, beginning with one. For operators. Receivers know by the id that they had them.

    It is paused, resumed and removed by triggers on `subscription/NAME`.
    """
    if (start := _start(order)) is None:
        raise BadInput("give one of event and since")
    done = await operate_on(
        caller, ref, project, order, lambda runtime, id_, why: replay_events(runtime, id_, start, why), TYPE
    )
    return JsonAnswer({"subscription": done.subscription_id, "events": done.events})


def _start(order: ReplayOrder) -> str | datetime | None:
    return None if (order.event is None) == (order.since is None) else order.event or order.since
