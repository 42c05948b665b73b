"""Make runs, workstreams and tasks without a plan, and workers to take them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

import psycopg
from uuid_utils.compat import uuid7

from interlock.db.connection import transaction
from interlock.db.core import requests
from interlock.db.core.request_rows import by_state, internal
from interlock.workers.client.client import Client
from interlock.workers.engine.creation import Birth
from interlock.workers.orchestration.scheduler import schedule
from interlock.workers.pool import claims
from interlock.workers.pool.claims import Claim
from interlock.workers.pool.registration import EXECUTE, WorkerDescription, register
from interlock.workers.pool.report import Report
from interlock.workers.runtime import Runtime
from interlock.workflows.machines.orchestration.reserved_fields import without_command
from tests import commanding
from tests.driving import applied, drain_all
from tests.rights import OF_SECRET, fire, known, remember

DONE = Report("execution_completed", {"exit_code": 0})
KEYS = {"tasks": "task_id", "workers": "worker_id", "uet_workers": "worker_id", "supervised_workers": "id"}
PRINT = ["python3", "-c", "print('done')"]


class Site:
    """One project's runs and tasks. Except for `submit`, they are in the states a scheduler would leave them in."""

    def __init__(self, client: Client, project: str) -> None:
        self.client = client
        self.project = project
        self._made = 0

    def run(self, *, priority: int = 0) -> UUID:
        """A running run without a plan, in which no commands are run."""
        made = self._create("run", {"priority": priority})
        applied(self.client, made, "start")
        return made

    def workstream(self, run: UUID, **context: Any) -> UUID:
        """A ready workstream."""
        made = self._create("workstream", {"run_id": str(run), **context})
        applied(self.client, made, "all_tasks_created")
        return made

    def tasks(self, workstream: UUID, count: int = 1, **context: Any) -> list[UUID]:
        """Queued tasks, in the order in which they will be claimed."""
        births = [self._task({"workstream_id": str(workstream), **context}) for _ in range(count)]
        commanding.deliver(self.client.runtime, births)
        made = [birth.id for birth in births]
        with transaction(self.client.runtime.database) as connection:
            requests.accept(
                connection,
                [
                    internal(str(uuid7()), each, "scheduler_assigned", by="scheduler", right=by_state(0))
                    for each in made
                ],
            )
        drain_all(self.client.runtime)
        return made

    def task(self, workstream: UUID, **context: Any) -> UUID:
        """One queued task."""
        return self.tasks(workstream, **context)[0]

    def queue(self, count: int = 1, **context: Any) -> list[UUID]:
        """Queued tasks in a new run and workstream, with a command unless they are of another kind."""
        run, workstream = self._planned()
        applied(self.client, run, "start")
        applied(self.client, workstream, "all_tasks_created")
        return self.tasks(workstream, count, **_commanded(context))

    def submit(self, count: int = 1, **context: Any) -> list[UUID]:
        """Tasks of a new run for a real scheduler: the run is started, and nothing is queued yet."""
        run, workstream = self._planned(task_count=count)
        body = {"workstream_id": str(workstream), "run_id": str(run)} | _commanded(context)
        births = [self._task(body) for _ in range(count)]
        commanding.deliver(self.client.runtime, births)
        fire(self.client, run, "start", by="ann")
        return [birth.id for birth in births]

    def _planned(self, **context: Any) -> tuple[UUID, UUID]:
        run = self._birth("run", {})
        workstream = self._birth("workstream", {"run_id": str(run.id), **context})
        runtime = self.client.runtime
        commanding.planned(runtime, run, workstream, directory=runtime.settings.home.parent)
        return run.id, workstream.id

    def _task(self, context: Mapping[str, Any]) -> Birth:
        plain = self.client.birth(
            "task",
            f"T-{self._next()}",
            project=self.project,
            context={"kind": "command", **without_command(context)},
        )
        return replace(plain, context={**context, **plain.context})

    def _birth(self, type_: str, context: Mapping[str, Any]) -> Birth:
        return self.client.birth(type_, f"{type_}-{self._next()}", project=self.project, context=context)

    def _create(self, type_: str, context: Mapping[str, Any]) -> UUID:
        birth = self._birth(type_, context)
        self.client.create_many([birth])
        return birth.id

    def _next(self) -> int:
        self._made += 1
        return self._made


def _commanded(context: Mapping[str, Any]) -> Mapping[str, Any]:
    return context if context.get("kind") in ("agent", "patch") else {"command": PRINT, **context}


def hand(runtime: Runtime, name: str = "hand", **said: Any) -> UUID:
    """Register an idle worker that can carry out commands."""
    capabilities = (*said.pop("capabilities", ("python",)), EXECUTE)
    return remember(register(runtime, WorkerDescription(name, capabilities, **said)))


def engine_worker(client: Client, project: str, name: str = "U", **said: Any) -> UUID:
    """Create an IDLE `uet_worker`."""
    made = UUID(str(client.create("uet_worker", name, project=project, context={**OF_SECRET, **said})["id"]))
    fire(client, made, "initialization_complete", by="engine")
    drain_all(client.runtime)
    return made


def row(dba: "psycopg.Connection[Any]", table: str, key: UUID) -> dict[str, Any]:
    """A typed row."""
    cursor = dba.execute(f"SELECT * FROM {table} WHERE {KEYS[table]} = %s", (key,))
    assert cursor.description
    (found,) = cursor.fetchall()
    return dict(zip((each.name for each in cursor.description), found, strict=True))


def silence(dba: "psycopg.Connection[Any]", worker: UUID, seconds: float, table: str = "workers") -> None:
    """Move a worker's last heartbeat `seconds` into the past."""
    dba.execute(
        f"UPDATE {table} SET created_at = LEAST(created_at, now() - make_interval(secs => %(ago)s)),"
        f" last_heartbeat = now() - make_interval(secs => %(ago)s) WHERE {KEYS[table]} = %(worker)s",
        {"ago": seconds, "worker": worker},
    )


def take(runtime: Runtime, worker: UUID) -> Claim:
    """Claim; something must fit."""
    claim = claims.take(runtime, known(worker))
    assert claim is not None
    drain_all(runtime)
    return claim


def look_at_runs(runtime: Runtime, *of: Claim) -> None:
    """Let the scheduler see what became of the claims' runs."""
    drain_all(runtime)
    for run in {claim.run_id for claim in of}:
        schedule(runtime, run)
    drain_all(runtime)


def finish(runtime: Runtime, claim: Claim, report: Report = DONE) -> None:
    claims.finish(runtime, known(claim.worker_id), claim.token, report)
    drain_all(runtime)
