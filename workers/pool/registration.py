"""Registration of workers: they register, send heartbeats, drain and leave (docs/spec/worker.md).

Shutting down is final (WORKER-11), so a worker that comes back under its name is a new worker. It is listed as NAME#1,
NAME#2, …; affinity uses the name without that suffix.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, RowMapping
from uuid_utils.compat import uuid7

from interlock.beat.heartbeats import wakeups_of
from interlock.db.connection import transaction
from interlock.db.core import instances, request_rows, requests
from interlock.db.orchestration import claim_triggers, claims, workers
from interlock.workers.client.partition_drainer import settle
from interlock.workers.engine import creation
from interlock.workers.engine.trigger_request import checked
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import AlreadyExists, BadInput, UnknownInstance
from interlock.workflows.input import names
from interlock.workflows.input.arguments import door

CREW = "interlock:workers"  # the project of all workers: they serve every project
OWN = "interlock:"  # capabilities with this prefix come from where a worker runs, and cannot be asked for
EXECUTE, AGENT = "interlock:execute", "interlock:agent"
NAME_LIMIT = 90  # leaves room for the suffix of a name that is used again


@dataclass(frozen=True, slots=True)
class WorkerDescription:
    """A worker's description of itself.

    Attributes:
        name: unique among the living workers.
        capabilities: what it can do, e.g. `python`, `git`.
        affinity: `{"workstreams": [names or ids]}`: it takes tasks of these only; empty: of any (WORKER-3).
        max_concurrent_tasks: how many it takes at once.
        worker_type: lets workstreams ask for a type instead of a name.
        more: further fields of its context.
    """

    name: str
    capabilities: tuple[str, ...]
    affinity: Mapping[str, Any] = field(default_factory=dict)
    max_concurrent_tasks: int = 1
    worker_type: str = "orchestration"
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Request:
    """Who wants a worker to leave, if not the worker itself, and why."""

    by: str
    reason: str


def register(runtime: Runtime, description: WorkerDescription, *, replaces: bool = False) -> UUID:
    """Register a worker; it is then idle and ready to claim.

    Args:
        description: the worker, as it describes itself.
        replaces: the previous worker of that name is known to be gone, whatever its recorded state.

    Raises:
        AlreadyExists: a living worker has that name.
        BadInput: the name, the capabilities or the affinity are not valid.
    """
    _check(description)
    definition = runtime.catalogue.get("worker")
    context = {
        "worker_type": description.worker_type,
        "capabilities": list(description.capabilities),
        "affinity": dict(description.affinity),
        "max_concurrent_tasks": description.max_concurrent_tasks,
        **description.more,
    }
    checked("what a worker says of itself", context, runtime.settings.context_limit_bytes)
    if wrong := definition.wrong_fields(context):
        raise BadInput(f"worker {description.name!r}: {'; '.join(wrong)}")
    with transaction(runtime.database) as connection:
        birth = creation.Birth(
            definition, _life(connection, description.name, replaces), CREW, description.name, context
        )
        if not creation.deliver(connection, [birth]).new:
            raise AlreadyExists(f"worker {description.name!r} is being registered by another process; try again")
        complete = request_rows.internal(
            f"{birth.id}:0:enlisted", birth.id, "registration_complete", by=description.name
        )
        requests.accept(connection, [complete])
    settle(runtime, complete["request_id"], birth.id)
    return birth.id


def heartbeat(runtime: Runtime, worker_ids: Iterable[UUID]) -> dict[UUID, RowMapping]:
    """Record that workers are alive, including those of the execution engine; (name, state, draining) of each.

    A worker declared unresponsive recovers. A worker that is shut down or TERMINATED is left out of the answer: it has
    lost its tasks and may only register again.
    """
    ids = set(worker_ids)
    with transaction(runtime.database) as connection:
        alive = {row["worker_id"]: row for row in workers.heartbeat(connection, ids)}
        if others := ids - alive.keys():
            alive |= {row["worker_id"]: row for row in workers.heartbeat_uet(connection, others)}
        back = [each for each, row in alive.items() if row["state"] == "unresponsive"]
        fired = wakeups_of(requests.accept(connection, _recovered(connection, back) if back else []))
    runtime.wakeups.partitions(fired)
    return alive


def drain(runtime: Runtime, worker_id: UUID, request: Request | None = None) -> int:
    """Let a worker take no more tasks, and shut it down once it has none (WORKER-10); how many it still has.

    Args:
        worker_id: the worker.
        request: who asked for it and why, in the event of its end; None: it leaves by itself.
    """
    with transaction(runtime.database) as connection:
        left = _drained(connection, worker_id, request)
    if left == 0:
        leave(runtime, worker_id, "is shut down", request)
    return left


def leave(runtime: Runtime, worker_id: UUID, message: str, request: Request | None = None) -> None:
    """Shut a worker down at once. Its tasks are given back, to be tried again by others.

    Args:
        worker_id: the worker.
        message: the reason, as it follows `worker NAME …`, if it leaves by itself.
        request: see `drain`.
    """
    with transaction(runtime.database) as connection:
        _drained(connection, worker_id, request)
        found = workers.get(connection, [worker_id])[worker_id]
        parting = (_parting(found, each, request) for each in PARTING.get(found["state"], ()))
        told = f"was shut down by {request.by}: {request.reason}" if request else message
        fired = wakeups_of(requests.accept(connection, [*_freed(connection, found, told), *parting]))
    runtime.wakeups.partitions(fired)


def drop(runtime: Runtime, worker_id: UUID, message: str) -> None:
    """Give back all tasks of a worker that stays registered, because it no longer works on them."""
    with transaction(runtime.database) as connection:
        found = workers.get(connection, [worker_id])[worker_id]
        rows = _freed(connection, found, message)
        fired = wakeups_of(requests.accept(connection, rows))
    runtime.wakeups.partitions(fired)
    for row in rows:
        if row["workflow_id"] == worker_id:  # only an idle worker may claim
            settle(runtime, row["request_id"], worker_id)


def name_of(worker: RowMapping) -> str:
    """The name that a worker registered under, without the suffix of a name that was used before."""
    return str(worker["name"]).partition("#")[0]


@door
def find(runtime: Runtime, name: str) -> RowMapping:
    """The latest worker of a name, or the worker of a UUID.

    Raises:
        UnknownInstance: there is none.
    """
    with transaction(runtime.database) as connection:
        found = workers.find_by_name(connection, name)
    if found is None:
        raise UnknownInstance(f"no worker is called {name!r}. `interlock worker list` shows those there are.")
    return found


def find_any(runtime: Runtime, name: str) -> UUID:
    """The latest worker with a name or UUID; if there is none, the project's worker of the execution engine.

    Raises:
        UnknownInstance: there is none.
    """
    with transaction(runtime.database) as connection:
        if found := workers.find_by_name(connection, name):
            return UUID(str(found["worker_id"]))
        try:
            return UUID(str(instances.find(connection, name, runtime.settings.project, "uet_worker")["id"]))
        except UnknownInstance as unknown:
            raise UnknownInstance(f"no worker is called {name!r} (`interlock worker list`), and {unknown}") from unknown


def _freed(connection: Connection, worker: RowMapping, message: str) -> list[dict[str, Any]]:
    reason = f"worker {worker['name']} {message}"
    given_back = [claim_triggers.task_returned(task, reason) for task in claims.held(connection, [worker["worker_id"]])]
    claims.retire(connection, [worker["worker_id"]])
    # A full worker that stays must become idle again; one that leaves can leave from either state.
    full = worker["current_load"] == worker["max_concurrent_tasks"] and not worker["draining"]
    return [*given_back, *([_parting(worker, "task_completed")] if full else [])]


def _drained(connection: Connection, worker_id: UUID, request: Request | None) -> int:
    by, reason = (request.by, request.reason) if request else (None, None)
    return workers.drain(connection, worker_id, by=by, reason=reason)


def _parting(worker: RowMapping, trigger: str, request: Request | None = None) -> dict[str, Any]:
    request_id = f"{worker['worker_id']}:{trigger}:{uuid7()}"
    by, metadata = (request.by, {"reason": request.reason}) if request else (worker["name"], None)
    return request_rows.internal(request_id, worker["worker_id"], trigger, by=by, metadata=metadata)


def _recovered(connection: Connection, worker_ids: Iterable[UUID]) -> list[dict[str, Any]]:
    return [
        request_rows.internal(
            f"{each}:{version}:recovered", each, "health_check_recovered", by="heartbeats", version=version
        )
        for each, version in workers.versions(connection, worker_ids).items()
    ]


def _life(connection: Connection, name: str, replaces: bool) -> str:
    latest = workers.find_by_name(connection, name)
    if latest is None:
        return name
    if latest["state"] != "shutdown" and not replaces:
        raise AlreadyExists(
            f"worker {name!r} is {latest['state']} already. Use it, shut it down, or take another name."
        )
    _, _, life = latest["name"].partition("#")
    return f"{name}#{int(life or 0) + 1}"


def _check(description: WorkerDescription) -> None:
    names.name("worker name", description.name, NAME_LIMIT)
    if "#" in description.name:
        raise BadInput(
            f"worker name {description.name!r} contains a '#', which is reserved for later registrations of a name"
        )


# State -> the triggers that shut a worker down from there.
PARTING: Mapping[str, tuple[str, ...]] = {
    "initializing": ("shutdown_requested",),
    "idle": ("shutdown_requested",),
    "busy": ("shutdown_requested",),
    "unresponsive": ("health_check_recovered", "shutdown_requested"),
    "suspended": ("resume", "shutdown_requested"),
}
