"""A member of the crew: it enlists, is heard of, drains and leaves (SSOT 1.5).

A name can have several lives, one after another: shut down is for ever (ruling 1), so who comes back is a new worker,
called NAME#1, NAME#2, … in the roster. Affinity goes by the name without that.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from sqlalchemy import Connection, RowMapping
from uuid_utils.compat import uuid7

from beat.silence import told
from db import crew, crew_requests, instances, requests, roster
from db.connect import transaction
from workers import births
from workers.crew.settling import settle
from workers.firing import named
from workers.runtime import Runtime
from workflows.errors import AlreadyExists, BadInput, UnknownInstance

CREW = uuid5(NAMESPACE_URL, "interlock:crew")  # the project of all workers: they serve every project
OWN = "interlock:"  # capabilities of this prefix are given by where a worker runs, not asked for
EXECUTE, AGENT = "interlock:execute", "interlock:agent"
NAME_LIMIT = 90  # what its lives are told apart by comes behind it


@dataclass(frozen=True, slots=True)
class Enlistment:
    """What a worker says of itself.

    Attributes:
        name: unique among those alive.
        capabilities: what it can do, e.g. `python`, `git`.
        affinity: `{"workstreams": [names or ids]}`: the only ones it takes tasks of; empty, any (SSOT 1.5.6).
        max_concurrent_tasks: how many it takes at once.
        worker_type: what workstreams may ask for instead of a name.
        more: anything else to keep with it.
    """

    name: str
    capabilities: tuple[str, ...]
    affinity: Mapping[str, Any] = field(default_factory=dict)
    max_concurrent_tasks: int = 1
    worker_type: str = "orchestration"
    more: Mapping[str, Any] = field(default_factory=dict)


def enlist(runtime: Runtime, wanted: Enlistment, *, replaces: bool = False) -> UUID:
    """Register a worker and have it idle, ready to claim.

    Args:
        wanted: what it says of itself.
        replaces: who bore the name before is known to be gone, whatever the roster says.

    Raises:
        AlreadyExists: a worker of that name is alive.
        BadInput: the name, the capabilities or the affinity are none.
    """
    _check(wanted)
    definition = runtime.catalogue.get("worker")
    context = {
        "worker_type": wanted.worker_type,
        "capabilities": list(wanted.capabilities),
        "affinity": dict(wanted.affinity),
        "max_concurrent_tasks": wanted.max_concurrent_tasks,
        **wanted.more,
    }
    if wrong := definition.wrong_fields(context):
        raise BadInput(f"worker {wanted.name!r}: {'; '.join(wrong)}")
    with transaction(runtime.database) as connection:
        birth = births.Birth(definition, _life(connection, wanted.name, replaces), CREW, wanted.name, context)
        if not births.deliver(connection, [birth]).new:
            raise AlreadyExists(f"worker {wanted.name!r} is being registered by somebody else")
        complete = crew_requests.request(f"{birth.id}:0:enlisted", birth.id, "registration_complete", by=wanted.name)
        requests.accept(connection, [complete])
    settle(runtime, complete["request_id"], birth.id)
    return birth.id


def heartbeat(runtime: Runtime, worker_ids: Iterable[UUID]) -> dict[UUID, RowMapping]:
    """Say that workers are alive, also those of the execution engine; (name, state, draining) of each.

    Who was given up for silent recovers. A worker that is shut down or TERMINATED has no answer: it holds nothing any
    more, and may only enlist anew.
    """
    ids = set(worker_ids)
    with transaction(runtime.database) as connection:
        alive = {row["worker_id"]: row for row in roster.heartbeat(connection, ids)}
        if others := ids - alive.keys():
            alive |= {row["worker_id"]: row for row in roster.heartbeat_uet(connection, others)}
        back = [each for each, row in alive.items() if row["state"] == "unresponsive"]
        fired = told(requests.accept(connection, _recovered(connection, back) if back else []))
    runtime.hints.lanes(fired)
    return alive


def drain(runtime: Runtime, worker_id: UUID) -> int:
    """Let a worker take no more and shut it down once it holds nothing (ruling 6); how many tasks it still holds."""
    with transaction(runtime.database) as connection:
        left = roster.drain(connection, worker_id)
    if left == 0:
        leave(runtime, worker_id, "is shut down")
    return left


def leave(runtime: Runtime, worker_id: UUID, says: str) -> None:
    """Shut a worker down at once; what it still holds is given back, to be tried again by others.

    Args:
        worker_id: the worker.
        says: why, as `worker NAME …` goes on.
    """
    with transaction(runtime.database) as connection:
        roster.drain(connection, worker_id)
        found = roster.get(connection, [worker_id])[worker_id]
        rows = [*_freed(connection, found, says), *(_parting(found, each) for each in PARTING.get(found["state"], ()))]
        fired = told(requests.accept(connection, rows))
    runtime.hints.lanes(fired)


def drop(runtime: Runtime, worker_id: UUID, says: str) -> None:
    """Give back whatever a worker holds that goes on otherwise: it does not work on it any more."""
    with transaction(runtime.database) as connection:
        found = roster.get(connection, [worker_id])[worker_id]
        rows = _freed(connection, found, says)
        fired = told(requests.accept(connection, rows))
    runtime.hints.lanes(fired)
    for row in rows:
        if row["workflow_id"] == worker_id:  # only an idle worker may claim
            settle(runtime, row["request_id"], worker_id)


def find(runtime: Runtime, name: str) -> RowMapping:
    """The latest worker of a name, or the one of a UUID.

    Raises:
        UnknownInstance: there is none.
    """
    with transaction(runtime.database) as connection:
        found = roster.called(connection, name)
    if found is None:
        raise _unknown(name)
    return found


def find_any(runtime: Runtime, name: str) -> UUID:
    """The latest worker of a name or a UUID, of the crew or else of the execution engine.

    Raises:
        UnknownInstance: there is none.
        AmbiguousInstance: several projects have a worker of the execution engine of that name.
    """
    with transaction(runtime.database) as connection:
        if found := roster.called(connection, name):
            return UUID(str(found["worker_id"]))
        with suppress(UnknownInstance):
            instance = instances.find(connection, name)
            if instance["workflow_type"] == "uet_worker":
                return UUID(str(instance["id"]))
    raise _unknown(name)


def _unknown(name: str) -> UnknownInstance:
    return UnknownInstance(f"no worker is called {name!r}. `interlock worker list` shows those there are.")


def _freed(connection: Connection, worker: RowMapping, says: str) -> list[dict[str, Any]]:
    reason = f"worker {worker['name']} {says}"
    given_back = [crew_requests.given_back(task, reason) for task in crew.held(connection, [worker["worker_id"]])]
    crew.retire(connection, [worker["worker_id"]])
    # One that had its hands full and goes on is idle again; one that leaves may leave from either.
    full = worker["current_load"] == worker["max_concurrent_tasks"] and not worker["draining"]
    return [*given_back, *([_parting(worker, "task_completed")] if full else [])]


def _parting(worker: RowMapping, trigger: str) -> dict[str, Any]:
    request_id = f"{worker['worker_id']}:{trigger}:{uuid7()}"
    return crew_requests.request(request_id, worker["worker_id"], trigger, by=worker["name"])


def _recovered(connection: Connection, worker_ids: Iterable[UUID]) -> list[dict[str, Any]]:
    return [
        crew_requests.request(
            f"{each}:{version}:recovered", each, "health_check_recovered", by="heartbeats", version=version
        )
        for each, version in roster.versions(connection, worker_ids).items()
    ]


def _life(connection: Connection, name: str, replaces: bool) -> str:
    latest = roster.called(connection, name)
    if latest is None:
        return name
    if latest["state"] != "shutdown" and not replaces:
        raise AlreadyExists(
            f"worker {name!r} is {latest['state']} already. Use it, shut it down, or take another name."
        )
    _, _, life = latest["name"].partition("#")
    return f"{name}#{int(life or 0) + 1}"


def _check(wanted: Enlistment) -> None:
    named("worker name", wanted.name, NAME_LIMIT)
    if "#" in wanted.name:
        raise BadInput(f"worker name {wanted.name!r} has a '#': that is kept for its later lives")


# What a worker's machine needs before it lets itself be shut down.
PARTING: Mapping[str, tuple[str, ...]] = {
    "initializing": ("shutdown_requested",),
    "idle": ("shutdown_requested",),
    "busy": ("shutdown_requested",),
    "unresponsive": ("health_check_recovered", "shutdown_requested"),
    "suspended": ("resume", "shutdown_requested"),
}
