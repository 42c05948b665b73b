"""Delivers the events of one subscription, in commit order, under a lease (SUBSCRIPTION-3 to SUBSCRIPTION-7).

The place up to which it has delivered is moved after each event, by whoever holds the lease. A worker that is killed
has at most one event delivered that its place does not say: that one is delivered again, with the same id.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import random
from time import monotonic
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy import Connection, RowMapping
from uuid_utils.compat import uuid7

from interlock.db.connection import retryable, transaction
from interlock.db.core import history, subscriptions
from interlock.db.core.subscriptions import ClaimedSubscription
from interlock.workers.effects.signed_call import CallNotAccepted, keys_of, signed
from interlock.workers.runtime import Runtime
from interlock.workers.subscriptions.outgoing import Outgoing
from interlock.workflows.audit.cloud_event import CONTENT_TYPE, cloud_event
from interlock.workflows.audit.cursors import cursor_of
from interlock.workflows.audit.ids import event_name
from interlock.workflows.backoff import full_jitter
from interlock.workflows.errors import InterlockError
from interlock.workflows.output.urls import without_users
from interlock.workflows.subscription_terms import SubscriptionTerms, read_terms

log = structlog.get_logger()

BATCH = 200  # events read at once
LEASE_SECONDS = 60.0  # renewed with each event; a call takes at most 15 s
TURN_SECONDS = 5.0  # then others that wait for this thread get it; a node that ends waits for so long
LONGEST_ERROR = 500  # characters


class LeaseLost(InterlockError):
    """The subscription was paused, replayed or removed meanwhile, or another worker has it. Nothing is to be done."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One worker's turn at a subscription."""

    runtime: Runtime
    claimed: ClaimedSubscription
    terms: SubscriptionTerms
    outgoing: Outgoing
    keys: Sequence[bytes]
    restored: Sequence[int]

    def send(self, event: RowMapping) -> dict[str, Any]:
        """Send an event; returns the endpoint's answer. Raises `CallNotAccepted`, `EndpointNotAllowed`."""
        place, name = (event["xid"], event["position"]), event_name(event["id"])
        text = cloud_event(dict(event), cursor_of(place, self.restored)).encode()
        return self.outgoing.send(text, {"Content-Type": CONTENT_TYPE} | signed(self.keys, name, text))

    def settle(self, event: RowMapping, *, count: int, answer: Mapping[str, Any] | None = None) -> None:
        """Move the subscription's place to an event. Raises `LeaseLost`."""
        with self.runtime.statements.connect() as connection:
            kept = subscriptions.delivered(
                connection,
                self.claimed,
                (event["xid"], event["position"]),
                count=count,
                answer=answer,
                seconds=LEASE_SECONDS,
            )
        if not kept:
            raise LeaseLost(f"the lease of the subscription {self.claimed['name']} was lost")


def deliver(runtime: Runtime, subscription_id: UUID) -> str:
    """Deliver what is due of a subscription, for at most `TURN_SECONDS`.

    Returns:
        What became of it, for people.

    Raises:
        DBAPIError: the database is away; the lease ends by itself.
    """
    with runtime.statements.connect() as connection:
        claimed = subscriptions.claim(connection, subscription_id, lease=uuid7(), seconds=LEASE_SECONDS)
    if claimed is None:
        return "nothing to do: it is not due, or another worker has it"
    delivered, refused = 0, None
    try:
        with _turn(runtime, claimed) as turn:
            for event in _wanted(turn):
                refused = event
                answer = turn.send(event)
                turn.settle(event, count=1, answer=answer | {"event": event_name(event["id"])})
                delivered, refused = delivered + 1, None
    except LeaseLost as lost:
        return f"{claimed['name']}: {delivered} delivered; {lost}"
    except Exception as error:
        if retryable(error):
            raise
        said = _failed(runtime, claimed if not delivered else {**claimed, "attempts": 0}, error, refused)
        return f"{claimed['name']}: {delivered} delivered; {said}"
    with runtime.statements.connect() as connection:
        subscriptions.release(connection, claimed)
    return f"{claimed['name']}: {delivered} delivered"


@contextmanager
def _turn(runtime: Runtime, claimed: ClaimedSubscription) -> Iterator[Turn]:
    """What a turn needs. Secrets are read once in each."""
    terms = read_terms(claimed["context"])
    keys = keys_of(runtime.settings, terms.endpoint)
    with transaction(runtime.database) as connection:
        restored = history.epochs(connection)
    with Outgoing(terms.endpoint.url, runtime.settings.subscription_hosts) as outgoing:
        yield Turn(runtime, claimed, terms, outgoing, keys, restored)


def _wanted(turn: Turn) -> Iterator[RowMapping]:
    """The events to deliver, until there are no more or the turn is over; passes over those that are not wanted."""
    until, place = monotonic() + TURN_SECONDS, (turn.claimed["xid"], turn.claimed["position"])
    while True:
        with transaction(turn.runtime.database) as connection:
            events = batch(connection, place)
        settled = True
        for event in events:
            settled = turn.terms.want(dict(event), turn.claimed["project"])
            if settled:
                yield event
            if monotonic() > until:
                break
        if events and not settled:
            turn.settle(event, count=0)
        if len(events) < BATCH or monotonic() > until:
            return
        place = events[-1]["xid"], events[-1]["position"]


def batch(connection: Connection, place: tuple[int, int]) -> Sequence[RowMapping]:
    """The next events behind a place, from the archive, too, if that has any."""
    return history.batch(connection, place, limit=BATCH, archived=history.is_archived_after(connection, place))


def _failed(runtime: Runtime, claimed: ClaimedSubscription, error: Exception, event: RowMapping | None) -> str:
    """Keep why the endpoint has not taken an event, and when it is tried again; returns it in words.

    Args:
        runtime, claimed: whose, and with how many attempts in vain before this one.
        error: what went wrong.
        event: that was not taken; None: it did not come to that.
    """
    policy = runtime.retry_policy
    wait = full_jitter(
        claimed["attempts"] + 1,
        base_seconds=policy.base_seconds,
        cap_seconds=policy.cap_seconds,
        chance=random(),  # noqa: S311 - jitter, not a secret
    )
    said = without_users(str(error) or type(error).__name__)[:LONGEST_ERROR]
    answer = (error.answer or {}) if isinstance(error, CallNotAccepted) else {}
    kept = {**answer, "error": said, "event": event and event_name(event["id"])}
    log.warning(
        "delivery_failed", subscription=claimed["name"], error=said, exc_info=not isinstance(error, InterlockError)
    )
    with runtime.statements.connect() as connection:
        subscriptions.failed(connection, claimed, kept, wait_seconds=wait)
    return said
