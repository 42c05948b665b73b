"""Operators subscribe endpoints to events, and change that: events, applied at once (docs/spec/subscription.md)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from sqlalchemy import Connection

from interlock.db.audit.commit_order import count_between
from interlock.db.connection import transaction
from interlock.db.core import instances, subscriptions
from interlock.db.core.instances import InstanceRow
from interlock.db.core.subscriptions import Place, SubscriptionRow
from interlock.workers.overrides.at_once import AtOnce, at_once
from interlock.workers.overrides.transaction import OverrideOrder, require_operator
from interlock.workers.runtime import Runtime
from interlock.workers.subscriptions.hosts import EndpointNotAllowed, require_allowed
from interlock.workflows.audit.ids import event_name, event_uuid
from interlock.workflows.catalogue import Catalogue
from interlock.workflows.errors import AlreadyExists, BadInput, Refused
from interlock.workflows.input import names
from interlock.workflows.input.arguments import FreeText, door, record
from interlock.workflows.spelling import meant

TYPE = "subscription"
Change = Literal["pause", "resume", "remove"]
NOTHING: Mapping[str, Any] = {}


class NothingToSkip(Refused):
    """The subscription's endpoint has refused no event since the last that it took. `interlock subscription show`."""


@record
@dataclass(frozen=True, slots=True)
class WantedEvents:
    """Which events a subscription delivers. An empty one of these leaves nothing out.

    Attributes:
        types: workflow types.
        states: that an event enters.
        triggers: that made the move.
        every_project: of all projects; otherwise of the subscription's own.
    """

    types: Sequence[str] = ()
    states: Sequence[str] = ()
    triggers: Sequence[str] = ()
    every_project: bool = False

    def terms(self, catalogue: Catalogue) -> dict[str, Any]:
        """As a subscription's context has them. Raises `BadInput` if no definition has one of these."""
        chosen = [each for each in catalogue if not self.types or each.type in self.types]
        _require_known("type", self.types, (each.type for each in catalogue))
        _require_known("state", self.states, (state for each in chosen for state in each.states))
        moves = (move.trigger for each in chosen for move in each.transitions)
        _require_known("trigger", self.triggers, (*moves, "definition.migrate"))
        lists = {"types": self.types, "states": self.states, "triggers": self.triggers}
        every = {"every_project": True} if self.every_project else {}
        return {name: list(said) for name, said in lists.items() if said} | every


@door
def subscribe(
    runtime: Runtime,
    name: FreeText,
    url: FreeText,
    order: OverrideOrder,
    *,
    secrets: Sequence[str],
    wanted: WantedEvents,
    project: str | None = None,
) -> InstanceRow:
    """Have events delivered to an endpoint, from now on (SUBSCRIPTION-4).

    Args:
        runtime: whose database and definitions.
        name: of the subscription, unique in the project for ever.
        url: where it delivers to.
        order: the operator, and why.
        secrets: where workers find what signs it: `env:NAME`, `file:PATH` or `command:NAME`; several while one is
            replaced.
        wanted: which events.
        project: default: the runtime's.

    Returns:
        The subscription's instance.

    Raises:
        NotAnOperator: `order.by` is none.
        BadInput: a term is not valid, or the endpoint is not allowed.
        AlreadyExists: the project has, or had, a subscription of that name.
        CannotMove, StillDeciding: see `at_once`.
    """
    of_project = names.project_or(project, runtime.settings.project)
    context = {"url": url, "secrets": list(secrets)} | wanted.terms(runtime.catalogue)
    if wrong := runtime.catalogue.get(TYPE).wrong_fields(context):
        raise BadInput("; ".join(wrong))
    try:
        require_allowed(url, runtime.settings.subscription_hosts)
    except EndpointNotAllowed as refused:
        raise BadInput(str(refused)) from None
    entity_id = names.entity_id(name)
    with at_once(runtime) as acting:
        require_operator(acting.connection, order.by, "activate", f"{TYPE} {entity_id}", project=of_project)
        made = acting.born(TYPE, entity_id, by=order.by, terms=context, project=of_project, proof=order.proof)
        if not instances.by_ids(acting.connection, [made]):
            raise AlreadyExists(f"project {of_project} has, or had, a subscription {entity_id}: choose another name")
        return _moved(acting, made, "activate", order)


@door
def change_subscription(runtime: Runtime, ref: str | UUID, change: Change, order: OverrideOrder) -> InstanceRow:
    """Pause, resume or remove a subscription. What happens during a pause is delivered after it.

    Args:
        runtime: whose database and definitions.
        ref: its name in the runtime's project, or its UUID.
        change: pause, resume or remove.
        order: the operator, and why.

    Returns:
        The subscription's instance.

    Raises:
        NotAnOperator: `order.by` is none.
        UnknownInstance, AmbiguousInstance: there is none.
        CannotMove, StillDeciding: see `at_once`.
    """
    if change not in ("pause", "resume", "remove"):
        raise BadInput("a subscription can be paused, resumed and removed")
    with at_once(runtime) as acting:
        found = _found(acting, ref, change, order)
        return _moved(acting, found["id"], change, order)


@dataclass(frozen=True, slots=True)
class Replay:
    """What is delivered again.

    Attributes:
        subscription_id: whose.
        place, goal: what stands behind the one place, up to the other, where it stood before.
        events: how many events that is, with those that are not wanted.
    """

    subscription_id: UUID
    place: Place
    goal: Place
    events: int


@door
def replay_events(runtime: Runtime, ref: str | UUID, start: str | datetime, order: OverrideOrder) -> Replay:
    """Deliver events again, beginning with one (SUBSCRIPTION-10).

    Args:
        runtime, ref, order: see `change_subscription`.
        start: the id of the first event (`evt_…`), or an instant: the first event since then.

    Raises:
        NotAnOperator: `order.by` is none.
        BadInput: there is no such event, or it is not delivered yet.
        UnknownInstance, AmbiguousInstance: there is no such subscription.
        CannotMove, StillDeciding: see `at_once`.
    """
    with at_once(runtime) as acting:
        found = _found(acting, ref, "replay", order)
        row = _standing(acting.connection, found["id"])
        xid, position = _place(acting.connection, start)
        place, goal = (xid, position - 1), _reached(row)
        if place >= goal:
            raise BadInput(f"the subscription {row['name']} has not come to that event yet: nothing is to be repeated")
        events = count_between(acting.connection, place, goal)
        _moved(acting, found["id"], "replay", order, _after(place) | {"from": str(start)})
    return Replay(found["id"], place, goal, events)


def replayed(runtime: Runtime, going: Replay) -> int:
    """How many events of a replay are delivered, or passed over, by now."""
    with transaction(runtime.database) as connection:
        return min(
            going.events, count_between(connection, going.place, _reached(_standing(connection, going.subscription_id)))
        )


@door
def skip_event(runtime: Runtime, ref: str | UUID, order: OverrideOrder) -> str:
    """Give up on the event that its endpoint refuses, and go on behind it (SUBSCRIPTION-11); returns the event's id.

    Args:
        runtime, ref, order: see `change_subscription`.

    Raises:
        NotAnOperator: `order.by` is none.
        NothingToSkip: no event is refused.
        UnknownInstance, AmbiguousInstance: there is no such subscription.
        CannotMove, StillDeciding: see `at_once`.
    """
    with at_once(runtime) as acting:
        found = _found(acting, ref, "skip", order)
        row = _standing(acting.connection, found["id"])
        event = (row["answer"] or NOTHING).get("event") if row["failed_at"] else None
        if event is None:
            raise NothingToSkip(f"the endpoint of the subscription {row['name']} refuses no event")
        place = _place(acting.connection, event)
        _moved(acting, found["id"], "skip", order, _after(place) | {"event": event})
    return str(event)


def standing(connection: Connection, ref: str | UUID, project: str) -> SubscriptionRow:
    """How a subscription stands. Raises `UnknownInstance` if there is none."""
    return _standing(connection, instances.find(connection, ref, project, TYPE)["id"])


def _standing(connection: Connection, subscription_id: UUID) -> SubscriptionRow:
    (row,) = subscriptions.listed(connection, subscription_id=subscription_id, removed=True)
    return row


def _reached(row: SubscriptionRow) -> Place:
    """The place up to which it has delivered; before everything, if it is not in force."""
    return (row["xid"] or 0, row["position"] or 0)


def _found(acting: AtOnce, ref: str | UUID, attempted: str, order: OverrideOrder) -> InstanceRow:
    found = instances.find(acting.connection, ref, acting.runtime.settings.project, TYPE)
    said = f"{TYPE} {found['entity_id']}"
    require_operator(acting.connection, order.by, attempted, said, project=found["project"])
    return found


def _moved(
    acting: AtOnce, subscription_id: UUID, trigger: str, order: OverrideOrder, more: Mapping[str, Any] = NOTHING
) -> InstanceRow:
    acting.move(subscription_id, trigger, by=order.by, reason=order.reason, right=order.right, more=more)
    return instances.by_id(acting.connection, subscription_id)


def _after(place: Place) -> dict[str, Any]:
    return {"after": {"xid": place[0], "position": place[1]}}


def _place(connection: Connection, start: str | datetime) -> Place:
    """Where the first event to repeat stands."""
    if isinstance(start, datetime):
        found = subscriptions.first_since(connection, start)
        if found is None:
            raise BadInput(f"there is no event since {start:%Y-%m-%d %H:%M:%S %Z}")
        return found
    try:
        event_id = event_uuid(start)
    except ValueError:
        raise BadInput(f"{start[:60]!r} is no event's id, such as {event_name(UUID(int=0))}") from None
    found = subscriptions.place_of_event(connection, event_id)
    if found is None:
        raise BadInput(f"history has no event {start}")
    return found


def _require_known(kind: str, said: Iterable[str], known: Iterable[str]) -> None:
    """Refuse a name that nothing has: the filter would let nothing through, and nobody would know."""
    known = sorted(set(known))
    for each in said:
        if each not in known:
            near = meant(str(each), known)
            hint = f"did you mean {near}?" if near else "`interlock definitions list` shows the types"
            raise BadInput(f"no definition has the {kind} {each}: {hint}")
