"""Subscriptions of tests: an endpoint of their own, and one turn of delivery in process."""

import base64
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from standardwebhooks import Webhook as Standard

from interlock.db.connection import transaction
from interlock.db.core import history, subscriptions
from interlock.db.core.subscriptions import SubscriptionRow
from interlock.workers import sweeps
from interlock.workers.overrides.subscriptions import WantedEvents, standing, subscribe
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.runtime import Runtime
from interlock.workers.subscriptions.delivery import deliver
from interlock.workflows.audit.ids import event_name
from tests.webhooks import Webhook

SECRET = "whsec_" + base64.b64encode(b"s" * 32).decode()
ORDER = OverrideOrder("ann", "others want to know")
EVERYTHING = WantedEvents()
TOLERATED = timedelta(minutes=5)  # Standard Webhooks: a receiver refuses what is older or younger


def secrets_in(directory: Path) -> Path:
    """A directory of secrets with one, `own`."""
    directory.mkdir(mode=0o700)
    (directory / "own").write_text(f"{SECRET}\n")
    (directory / "own").chmod(0o600)
    return directory


def endpoint(world: Webhook) -> str:
    """The address of a receiver."""
    return world.url.replace("json://", "http://")


def subscribed(runtime: Runtime, world: Webhook, name: str = "s", wanted: WantedEvents = EVERYTHING) -> None:
    """Subscribe a receiver to events from now on."""
    subscribe(runtime, name, endpoint(world), ORDER, secrets=["file:own"], wanted=wanted)


def from_then_on(runtime: Runtime, name: str, *types: str) -> list[str]:
    """The ids of the events of some types that were committed since a subscription was made, in commit order."""
    with transaction(runtime.database) as connection:
        (event,) = history.of_instance(connection, standing(connection, name, runtime.settings.project)["id"])[:1]
        behind = history.batch(connection, (int(event["xid"]), event["position"]), limit=100_000)
    return [event_name(each["id"]) for each in behind if each["workflow_type"] in types]


def turn(runtime: Runtime) -> list[str]:
    """One turn for each subscription that is due; what each says of it."""
    with transaction(runtime.database) as connection:
        due = subscriptions.due(connection, limit=100)
    return [deliver(runtime, each) for each in due]


def row(runtime: Runtime, name: str = "s") -> SubscriptionRow:
    """How a subscription stands."""
    with transaction(runtime.database) as connection:
        return standing(connection, name, runtime.settings.project)


def received(world: Webhook) -> list[CloudEvent]:
    """What a receiver got, as others' libraries read and sign it; each had its time's signature when it arrived."""
    events = []
    for each in world.received:
        sent = datetime.fromtimestamp(int(each["webhook-timestamp"]), UTC)
        assert abs(each["arrived"] - sent) < TOLERATED
        assert (
            Standard(SECRET).sign(each["webhook-id"], sent, each["body"].decode()) in each["webhook-signature"].split()
        )
        assert urlsplit(each["content-type"].partition(";")[0]).path == "application/cloudevents+json"
        event = JSONFormat().read(CloudEvent, each["body"])
        assert event.get_id() == each["webhook-id"]
        events.append(event)
    return events


def firsts(world: Webhook) -> list[str]:
    """The events that an endpoint took, in the order in which each came first."""
    return list(dict.fromkeys(str(each.get_id()) for each in received(world)))


def entities(world: Webhook) -> list[str]:
    """The instances whose events a receiver got, in this order."""
    return [str(event.get_subject()).partition("/")[2] for event in received(world)]


def data(world: Webhook) -> list[dict[str, Any]]:
    """The events themselves."""
    return [json.loads(each["body"])["data"] for each in world.received]


def swept(runtime: Runtime) -> int:
    """Run the sweep that wakes deliveries; how many were due."""
    return sweeps.SWEEPS["subscriptions"](runtime)
