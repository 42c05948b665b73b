"""Work on a run in process, with the real scheduler and engine, and a worker that the test controls."""

from collections.abc import Collection
from typing import Any
from uuid import UUID

from interlock.db.connection import transaction
from interlock.db.core import effects
from interlock.db.orchestration import run_tree
from interlock.workers.client.client import Client
from interlock.workers.engine import creation
from interlock.workers.orchestration.scheduler import schedule
from tests.driving import applied, drain_all
from tests.rights import OF_SECRET, fire

Rows = dict[str, list[dict[str, Any]]]

CAPABILITIES = ["interlock:execute", "interlock:agent", "python", "prose"]


def settle(client: Client, run_id: UUID) -> None:
    """Run scheduler and engine until neither has anything left to do."""
    drain_all(client.runtime)
    while schedule(client.runtime, run_id) or drain_all(client.runtime):
        pass


def hire(client: Client, project: str, name: str = "worker-1") -> UUID:
    """Make an idle worker with all capabilities."""
    context = {"capabilities": CAPABILITIES, "max_concurrent_tasks": 100, **OF_SECRET}
    birth = creation.Birth(client.runtime.catalogue.get("worker"), name, project, "test", context)
    with transaction(client.runtime.database) as connection:
        creation.deliver(connection, [birth])
    worker_id = birth.id
    applied(client, worker_id, "registration_complete")
    return worker_id


def work(client: Client, run_id: UUID, worker_id: UUID, *, failing: Collection[str] = ()) -> None:
    """Do every task that becomes queued, and fail those in `failing`; pass gates, and land complete workstreams."""
    settle(client, run_id)
    before = None
    while before != (before := read(client, run_id)):
        step(client, before, worker_id, failing)
        settle(client, run_id)


def step(client: Client, rows: Rows, worker_id: UUID, failing: Collection[str] = ()) -> None:
    """Begin and end queued tasks, start gates and pass them, and land workstreams that are validating."""
    for row in rows["task"]:
        if row["state"] == "queued":
            perform(client, row["id"], worker_id, well=row["name"] not in failing)
    for row in rows["test_gate"]:
        if row["state"] == "PENDING" and is_asked_for(client, row["id"]):
            applied(client, row["id"], "gate_started")
        if row["state"] == "RUNNING":
            fire(client, row["id"], "gate_passed", by="test", data={"exit_code": 0})
    for row in rows["workstream"]:
        if row["state"] == "validating":
            fire(client, row["id"], "validation_passed", by="test")


def is_asked_for(client: Client, gate: UUID) -> bool:
    """Whether the scheduler has asked for a gate to be run."""
    with transaction(client.runtime.database) as connection:
        return any(effect["name"] == "run_gate" for effect in effects.of_instance(connection, gate))


def perform(client: Client, task_id: UUID, worker_id: UUID, *, well: bool) -> None:
    """Begin a task and end it."""
    started = {"worker_id": str(worker_id), "capabilities": CAPABILITIES}
    fire(client, task_id, "worker_started", by="worker", data=started)
    if well:
        fire(client, task_id, "execution_completed", by="worker", data={"exit_code": 0})
    else:
        fire(client, task_id, "execution_failed", by="worker", data={"exit_code": 1, "error": "it broke"})


def read(client: Client, run_id: UUID) -> Rows:
    """All rows of a run, by kind."""
    with transaction(client.runtime.database) as connection:
        found = run_tree.whole(connection, run_id)
    return {kind: [dict(row) for row in rows] for kind, rows in found.rows.items()}


def states(client: Client, run_id: UUID, kind: str = "task") -> dict[str, str]:
    """The plan's name -> state."""
    return {str(row["name"]): str(row["state"]) for row in read(client, run_id)[kind]}
