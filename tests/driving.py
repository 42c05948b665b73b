"""Drive the engine in process, without Celery, through the functions that Celery's tasks call."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import psycopg
import pytest

from interlock.db.connection import transaction
from interlock.db.core import instances, requests
from interlock.workers import sweeps
from interlock.workers.client.client import Client
from interlock.workers.runtime import Runtime
from tests.rights import fire

UP_TO_REVIEW = ("design_complete", "start_coding", "submit_pr")


def drain_all(runtime: Runtime) -> int:
    """Apply the requests of all partitions until none are left; returns their number."""
    total = 0
    while taken := sum(_apply(runtime, partition) for partition in partitions_due(runtime)):
        total += taken
    return total


def drain_failing(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Apply the requests of all partitions while every decision raises `ValueError`."""
    with monkeypatch.context() as broken:
        broken.setattr("interlock.workers.engine.applier.decide", raising(ValueError))
        drain_all(runtime)


def with_a_dead_request(runtime: Runtime, project: str, monkeypatch: pytest.MonkeyPatch) -> UUID:
    """Create the story S-1 and have its trigger `block` die, on a runtime with one attempt; returns the story."""
    client = Client(runtime)
    story: UUID = client.create("story", "S-1", project=project)["id"]
    client.fire(story, "block", by="ann", request_id="block it")
    drain_failing(runtime, monkeypatch)
    return story


def partitions_due(runtime: Runtime) -> list[int]:
    """The partitions with something pending: one look instead of a round in each of sixteen."""
    with transaction(runtime.database) as connection:
        return [row["partition"] for row in requests.partitions_due(connection)]


def _apply(runtime: Runtime, partition: int) -> int:
    done = runtime.applier.apply_partition(partition)
    runtime.publish(done)
    return done.taken


def applied(client: Client, ref: str | UUID, *triggers: str, by: str = "agent-1") -> None:
    """Fire triggers and apply them; fails if one is not applied."""
    for trigger in triggers:
        receipt = fire(client, ref, trigger, by=by)
        drain_all(client.runtime)
        settled = outcome(client, receipt.request_id)
        assert settled["status"] == "applied", settled


def block_stories(client: Client, *names: str, by: str = "ann") -> None:
    """Create stories and block each, one after the other: an event of each, in this order."""
    client.create_many([client.birth("story", each, by=by) for each in names])
    for each in names:
        client.fire(f"story/{each}", "block", by=by)
        drain_all(client.runtime)


def outcome(client: Client, request_id: str) -> dict[str, Any]:
    """A request's current row."""
    with transaction(client.runtime.database) as connection:
        return dict(requests.by_ids(connection, [request_id])[request_id])


def state(client: Client, ref: str | UUID) -> str:
    """An instance's state, in a third of the time that `Client.show` takes to tell all there is to say of it."""
    with transaction(client.runtime.database) as connection:
        return instances.find_with_archived(connection, ref, client.project)["current_state"]


def trail(client: Client, ref: str | UUID) -> list[str]:
    """The triggers of an instance's history, in order."""
    return [event["trigger"] for event in client.history(ref)]


def reported(client: Client, task: UUID) -> dict[str, Any]:
    """What a task's worker reported last."""
    events = client.history(task)
    return next(dict(event["metadata"]) for event in reversed(events) if event["from_state"] == "running")


def make_due(dba: "psycopg.Connection[Any]", trigger: str = "%") -> int:
    """Make every scheduled request due; returns their number."""
    return dba.execute(
        "UPDATE trigger_requests SET not_before = now() - interval '1 second'"
        " WHERE status = 'scheduled' AND trigger LIKE %s",
        (trigger,),
    ).rowcount


def raising(error: type[Exception]) -> Callable[..., Any]:
    """A function that raises `error`, whatever its arguments."""

    def fail(*_: object, **__: object) -> None:
        raise error("on purpose")

    return fail


def swept(runtime: Runtime, name: str) -> int | None:
    """Run a sweep; returns what it found, or None if it has already run in this period."""
    return sweeps.run(runtime, name).get(name)
