"""Registration of workers: they register, send heartbeats, drain and leave (docs/spec/worker.md).

Shutting down is final (WORKER-11), so a worker that comes back under its name is a new worker. It is listed as NAME#1,
NAME#2, …; affinity uses the name without that suffix.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Connection, RowMapping
from uuid_utils.compat import uuid7

from interlock.beat.heartbeats import wakeups_of
from interlock.db.connection import transaction
from interlock.db.core import instances, request_rows, requests
from interlock.db.orchestration import claim_triggers, claims, itself, workers
from interlock.db.statements import Rows
from interlock.workers.client.partition_drainer import settle
from interlock.workers.client.receipts import require_version
from interlock.workers.engine import creation, worker_secrets
from interlock.workers.engine.trigger_request import checked
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import AlreadyExists, BadInput, Refused, UnknownInstance
from interlock.workflows.input import names
from interlock.workflows.input.arguments import door

CREW = "interlock:workers"  # the project of all workers: they serve every project
EXECUTE, AGENT = "interlock:execute", "interlock:agent"
LEAVE = "shutdown_requested"
NAME_LIMIT = 90  # leaves room for the suffix of a name that is used again


@dataclass(frozen=True, slots=True)
class WorkerDescription:
    """A worker's description of itself.

    Attributes:
        name: unique among the living workers.
        capabilities: what it can do, e.g. `python`, `git`.
        affinity: `{"workstreams": [names or ids], "phases": [names]}`: it takes tasks of these only; without one of
            the keys: of any (WORKER-3).
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
class Registration:
    """A registered worker, and the secret by which it speaks for itself; nobody else is told that (AUTHORITY-15)."""

    worker_id: UUID
    secret: str = field(repr=False)


class Dismissal(NamedTuple):
    """An operator's wish that a worker leaves, why, at which version of it (None: at any), and by which token."""

    worker_id: UUID
    by: str
    reason: str
    if_version: int | None = None
    proof: str | None = None


class StillAnswers(Refused):
    """A worker that was to be shut down if it is silent sends heartbeats. Nothing was changed."""


def register(runtime: Runtime, description: WorkerDescription, *, replaces: bool = False) -> Registration:
    """Register a worker; it is then idle and ready to claim.

    Args:
        description: the worker, as it describes itself.
        replaces: the previous worker of that name is known to be gone, whatever its recorded state.

    Returns:
        The worker's id, and its secret, which cannot be had again.

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
        **worker_secrets.digest_of(secret := worker_secrets.make()),
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
            f"{birth.id}:0:enlisted",
            birth.id,
            "registration_complete",
            by=description.name,
            right=request_rows.itself(secret),
        )
        requests.accept(connection, [complete])
    settle(runtime, complete["request_id"], birth.id)
    return Registration(birth.id, secret)


def heartbeat(runtime: Runtime, registered: Iterable[Registration]) -> dict[UUID, RowMapping]:
    """Record that workers are alive, whatever their machine; (name, state, draining) of each.

    A worker declared unresponsive recovers. A worker that is shut down or TERMINATED is left out of the answer: it has
    lost its tasks and may only register again.

    Raises:
        NotYours: a secret is not its worker's; nothing is recorded.
    """
    secrets = {each.worker_id: each.secret for each in registered}
    with transaction(runtime.database) as connection:
        alive = {row["worker_id"]: row for row in workers.heartbeat(connection, secrets)}
        back = [each for each, row in alive.items() if row["state"] == "unresponsive"]
        fired = wakeups_of(requests.accept(connection, _recovered(connection, back) if back else []))
    runtime.wakeups.partitions(fired)
    return alive


def drain(runtime: Runtime, wish: Registration | Dismissal) -> int:
    """Let a worker take no more tasks, and shut it down once it has none (WORKER-10, UET-5); how many it still has.

    Args:
        wish: its own, or an operator's, who and why are in the event of its end.

    Raises:
        NotYours: the secret is not the worker's.
        VersionConflict: it is not at the version of the wish.
    """
    with transaction(runtime.database) as connection:
        left = _drained(connection, wish)
        found = workers.get(connection, [wish.worker_id])[wish.worker_id]
        asked = [_parting(found, LEAVE, wish)] if left and _drains_in_its_machine(found) else []
        fired = wakeups_of(requests.accept(connection, asked))
    runtime.wakeups.partitions(fired)
    if left == 0:
        leave(runtime, wish, "is shut down")
    return left


def leave(runtime: Runtime, wish: Registration | Dismissal, message: str = "left", *, if_silent: bool = False) -> None:
    """Shut a worker down at once. Its tasks are given back, to be tried again by others.

    Args:
        wish: see `drain`.
        message: the reason, as it follows `worker NAME …`, if it leaves by itself.
        if_silent: only if its heartbeats are missing (WORKER-7).

    Raises:
        NotYours: the secret is not the worker's.
        VersionConflict: it is not at the version of the wish.
        StillAnswers: it was to leave only if it is silent, and it is not.
    """
    with transaction(runtime.database) as connection:
        _drained(connection, wish)  # and locked: a heartbeat comes before this, or after it
        silent_seconds = runtime.settings.silent_seconds
        if if_silent and not workers.is_silent(connection, wish.worker_id, silent_seconds=silent_seconds):
            raise StillAnswers("it sends heartbeats again, so it was not shut down. Without --if-silent it would be")
        found = workers.get(connection, [wish.worker_id])[wish.worker_id]
        parting = [_parting(found, each, wish) for each in PARTING.get(found["state"], (LEAVE,))]
        reason = f"was shut down by {wish.by}: {wish.reason}" if isinstance(wish, Dismissal) else message
        given_back, freed = _tasks_returned(connection, found, reason)
        ends = freed if found["project"] else []  # DRAINING by its request, a `uet_worker` ends once it holds no task
        fired = wakeups_of(requests.accept(connection, [*given_back, *parting, *ends]))
    runtime.wakeups.partitions(fired)


def drop(runtime: Runtime, registered: Registration, message: str) -> None:
    """Give back all tasks of a worker that stays registered, because it no longer works on them.

    Raises:
        NotYours: the secret is not the worker's.
    """
    worker_id = registered.worker_id
    with transaction(runtime.database) as connection:
        itself.require(connection, worker_id, registered.secret, "give its tasks back")
        found = workers.get(connection, [worker_id])[worker_id]
        given_back, freed = _tasks_returned(connection, found, message)
        fired = wakeups_of(requests.accept(connection, [*given_back, *freed]))
    runtime.wakeups.partitions(fired)
    for row in freed:  # only an idle worker may claim
        settle(runtime, row["request_id"], worker_id)


@door
def find(runtime: Runtime, name: str) -> RowMapping:
    """The latest worker of a name, or the worker of a UUID; if there is none, the project's `uet_worker` of that name.

    Raises:
        UnknownInstance: there is none.
    """
    with transaction(runtime.database) as connection:
        if found := workers.find_by_name(connection, name):
            return found
        try:
            of_project = instances.find(connection, name, runtime.settings.project, "uet_worker")["id"]
        except UnknownInstance as unknown:
            raise UnknownInstance(f"no worker is called {name!r} (`interlock worker list`), and {unknown}") from unknown
        return workers.get(connection, [of_project])[of_project]


def _tasks_returned(connection: Connection, worker: RowMapping, message: str) -> tuple[Rows, Rows]:
    """Take a worker's tasks away; the requests that give them back, and those that follow for a worker that stays."""
    taken, reason = claims.take_away(connection, [worker["worker_id"]]), f"worker {worker['name']} {message}"
    given_back = [row for claim in taken for row in claim_triggers.task_returned(claim, reason)]
    return given_back, [row for claim in taken for row in claim_triggers.freed(claim)]


def _drained(connection: Connection, wish: Registration | Dismissal) -> int:
    if isinstance(wish, Dismissal):
        left = workers.drain(connection, wish.worker_id, by=wish.by, reason=wish.reason)  # locked: no claim begins now
        require_version(instances.by_id(connection, wish.worker_id), wish.if_version)
        return left
    itself.require(connection, wish.worker_id, wish.secret, "shut down")
    return workers.drain(connection, wish.worker_id, by=None, reason=None)


def _parting(worker: RowMapping, trigger: str, wish: Registration | Dismissal) -> dict[str, Any]:
    if isinstance(wish, Dismissal):
        by, metadata, asked = wish.by, {"reason": wish.reason}, request_rows.OPERATOR._replace(proof=wish.proof)
    else:
        by, metadata, asked = worker["name"], {}, request_rows.itself(wish.secret)
    if trigger == LEAVE:
        return _own(worker, trigger, by=by, right=asked, metadata=metadata, origin="agent")
    return _own(worker, trigger, by=by, right=request_rows.by_worker(worker["worker_id"]), metadata=metadata)


def _drains_in_its_machine(worker: RowMapping) -> bool:
    """Whether its request to leave is a move of a worker that holds a task: BUSY → DRAINING (UET-5)."""
    return worker["project"] is not None and worker["state"] != "DRAINING"


def _own(worker: RowMapping, trigger: str, **more: Any) -> dict[str, Any]:
    return request_rows.internal(f"{worker['worker_id']}:{trigger}:{uuid7()}", worker["worker_id"], trigger, **more)


def _recovered(connection: Connection, worker_ids: Iterable[UUID]) -> list[dict[str, Any]]:
    return [
        request_rows.internal(
            request_rows.own_id(each, version, "recovered"),
            each,
            "health_check_recovered",
            by="heartbeats",
            right=request_rows.by_state(version),
        )
        for each, version in workers.versions(connection, worker_ids).items()
    ]


def _life(connection: Connection, name: str, replaces: bool) -> str:
    latest = workers.find_by_name(connection, name)
    if latest is None:
        return name
    if latest["state"] != "shutdown" and not replaces:
        raise AlreadyExists(
            f"worker {name!r} is {latest['state']} already. Use it with its secret, or take another name. If its "
            "secret is lost, an operator can shut it down, as its silence does."
        )
    _, _, life = latest["name"].partition("#")
    return f"{name}#{int(life or 0) + 1}"


def _check(description: WorkerDescription) -> None:
    names.name("worker name", description.name, NAME_LIMIT)
    if "#" in description.name:
        raise BadInput(
            f"worker name {description.name!r} contains a '#'. Choose one without: Interlock adds #2, #3, … when a "
            "name is registered again"
        )


# State -> the triggers that shut a worker down from there, where these are not just `LEAVE`.
PARTING: Mapping[str, tuple[str, ...]] = {
    "unresponsive": ("health_check_recovered", LEAVE),
    "DRAINING": (),
    "shutdown": (),
    "TERMINATED": (),
}
