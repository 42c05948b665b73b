"""Runs, workstreams and tasks without a plan, and workers to take them."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import psycopg

from tests.driving import applied, drain_all
from workers.births import Birth
from workers.client import Client
from workers.crew.member import EXECUTE, Enlistment, enlist
from workers.firing import Firing
from workers.runtime import Runtime

PRINT = ["python3", "-c", "print('done')"]


class Site:
    """One project's runs and tasks; but for `submit`, as the scheduler would leave them, without one."""

    def __init__(self, client: Client, project: UUID) -> None:
        self.client = client
        self.project = project
        self._made = 0

    def run(self, *, priority: int = 0) -> UUID:
        """A running run."""
        made = self._create("run", {"priority": priority})
        applied(self.client, made, "start")
        return made

    def workstream(self, run: UUID, **context: Any) -> UUID:
        """A ready workstream."""
        made = self._create("workstream", {"run_id": str(run), **context})
        applied(self.client, made, "all_tasks_created")
        return made

    def tasks(self, workstream: UUID, count: int = 1, **context: Any) -> list[UUID]:
        """Queued tasks, in the order in which they are claimed."""
        births = [self._task({"workstream_id": str(workstream), **context}) for _ in range(count)]
        self.client.create_many(births)
        made = [birth.id for birth in births]
        self.client.fire_many([Firing(each, "scheduler_assigned", "scheduler") for each in made])
        drain_all(self.client.runtime)
        return made

    def task(self, workstream: UUID, **context: Any) -> UUID:
        """One queued task."""
        return self.tasks(workstream, **context)[0]

    def queue(self, count: int = 1, **context: Any) -> list[UUID]:
        """Queued tasks of a run and a workstream of their own."""
        return self.tasks(self.workstream(self.run()), count, **context)

    def submit(self, count: int = 1, **context: Any) -> list[UUID]:
        """Tasks of a run that a real scheduler carries on from here: it was started, and nothing is queued yet."""
        run = self._create("run", {})
        body = {"workstream_id": str(self._create("workstream", {"run_id": str(run), "task_count": count}))}
        births = [self._task(body | {"run_id": str(run)} | context) for _ in range(count)]
        self.client.create_many(births)
        self.client.fire(run, "start", by="ann")
        return [birth.id for birth in births]

    def _task(self, context: Mapping[str, Any]) -> Birth:
        body = {"kind": "command", "command": PRINT, **context}
        return self.client.birth("task", f"T-{self._next()}", project_id=self.project, context=body)

    def _create(self, type_: str, context: Mapping[str, Any]) -> UUID:
        entity = f"{type_}-{self._next()}"
        return UUID(str(self.client.create(type_, entity, project_id=self.project, context=context)["id"]))

    def _next(self) -> int:
        self._made += 1
        return self._made


def hand(runtime: Runtime, name: str = "hand", **said: Any) -> UUID:
    """An idle worker that carries out commands."""
    capabilities = (*said.pop("capabilities", ("python",)), EXECUTE)
    return enlist(runtime, Enlistment(name, capabilities, **said))


def row(dba: "psycopg.Connection[Any]", table: str, key: UUID) -> dict[str, Any]:
    """A typed row."""
    column = {"tasks": "task_id", "workers": "worker_id", "uet_workers": "worker_id"}[table]
    cursor = dba.execute(f"SELECT * FROM {table} WHERE {column} = %s", (key,))
    assert cursor.description
    (found,) = cursor.fetchall()
    return dict(zip((each.name for each in cursor.description), found, strict=True))


def silence(dba: "psycopg.Connection[Any]", worker: UUID, seconds: float, table: str = "workers") -> None:
    """Let a worker's last heartbeat be so long ago."""
    dba.execute(
        f"UPDATE {table} SET created_at = LEAST(created_at, now() - make_interval(secs => %(ago)s)),"
        " last_heartbeat = now() - make_interval(secs => %(ago)s) WHERE worker_id = %(worker)s",
        {"ago": seconds, "worker": worker},
    )
