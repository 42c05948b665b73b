"""Drive the engine in process: no Celery, the same functions the tasks call."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import psycopg

from db import requests
from db.connect import transaction
from db.requests import LANES
from workers.client import Client
from workers.runtime import Runtime

UP_TO_REVIEW = ("design_complete", "start_coding", "submit_pr")


def drain_all(runtime: Runtime) -> int:
    """Apply every lane until nothing is taken; how many requests that was."""
    total = 0
    while taken := sum(_apply(runtime, lane) for lane in range(LANES)):
        total += taken
    return total


def _apply(runtime: Runtime, lane: int) -> int:
    done = runtime.applier.apply_lane(lane)
    runtime.publish(done)
    return done.taken


def applied(client: Client, ref: str | UUID, *triggers: str, by: str = "agent-1") -> None:
    """Fire triggers and apply them; each must be applied."""
    for trigger in triggers:
        receipt = client.fire(ref, trigger, by=by)
        drain_all(client.runtime)
        settled = outcome(client, receipt.request_id)
        assert settled["status"] == "applied", settled


def outcome(client: Client, request_id: str) -> dict[str, Any]:
    """A request's row as it stands."""
    with transaction(client.runtime.database) as connection:
        return dict(requests.by_ids(connection, [request_id])[request_id])


def state(client: Client, ref: str | UUID) -> str:
    """Where an instance stands."""
    return str(client.show(ref)["current_state"])


def trail(client: Client, ref: str | UUID) -> list[str]:
    """The triggers of an instance's history, in order."""
    return [event["trigger"] for event in client.history(ref)]


def make_due(dba: "psycopg.Connection[Any]", trigger: str = "%") -> int:
    """Let the time of every scheduled request pass; how many there are."""
    return dba.execute(
        "UPDATE trigger_requests SET not_before = now() - interval '1 second'"
        " WHERE status = 'scheduled' AND trigger LIKE %s",
        (trigger,),
    ).rowcount


def raising(error: type[Exception]) -> Callable[..., Any]:
    """A function that raises `error`, whatever it is called with."""

    def fail(*_: object, **__: object) -> None:
        raise error("on purpose")

    return fail
