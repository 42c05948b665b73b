"""Carry out runs in process, without Celery, git and subprocesses; the test reports for workers and effects.

`Stage` makes a run from a sketch, runs engine and scheduler until nothing is left to do, and plays the workers.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import psycopg
from uuid_utils.compat import uuid7

from interlock.db.connection import transaction
from interlock.db.orchestration import plans
from interlock.workers.client.client import Client
from interlock.workers.engine import creation
from interlock.workers.engine.creation import Birth
from interlock.workers.orchestration.scheduler import schedule
from interlock.workers.runtime import Runtime
from tests.driving import partitions_due
from tests.rights import OF_SECRET, fire

Dba = "psycopg.Connection[Any]"


# Workstreams, tasks and gates of a plan: a task with a gate, and one that depends on it.
GATED_PAIR = (
    {"w": {}},
    {"a": {"workstream": "w", "gates": ["g"]}, "b": {"workstream": "w", "depends_on": ["a"]}},
    {"g": {"workstream": "w", "moment": "task"}},
)


# A plan: a workstream of no phase of its own, and one of the phase `release`.
PHASED = """
name: p
phases: {release: {}}
workstreams:
  - {id: design, tasks: [{id: t, command: [x]}]}
  - {id: ship, phase_id: release, tasks: [{id: t, command: [x]}]}
"""


@dataclass
class Stage:
    """One project with runs.

    Attributes:
        ids: the sketch's names -> instances.
        starts_gates: whether `settle` also plays the node that takes up gates.
    """

    runtime: Runtime
    dba: "psycopg.Connection[Any]"
    project: str = field(default_factory=lambda: str(uuid7()))
    ids: dict[str, UUID] = field(default_factory=dict)
    run: UUID = field(default_factory=uuid7)
    starts_gates: bool = True

    @property
    def client(self) -> Client:
        return Client(self.runtime)

    def submit(
        self,
        workstreams: Mapping[str, Mapping[str, Any]],
        tasks: Mapping[str, Mapping[str, Any]],
        gates: Mapping[str, Mapping[str, Any]] | None = None,
        phases: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Make a run.

        Args:
            workstreams: name -> depends_on, critical, gates.
            tasks: name -> workstream, depends_on, critical, max_retries, gates, blocked_by_gates.
            gates: name -> workstream, moment, reruns_left, depends_on.
            phases: name -> terms, as in a plan.
        """
        gates = gates or {}
        for name in (*workstreams, *tasks, *gates):
            self.ids[name] = uuid7()
        made = [self._birth("run", "run", self.run, {})]
        for name, each in workstreams.items():
            count = sum(task["workstream"] == name for task in tasks.values())
            made.append(self._birth("workstream", name, self.ids[name], {"task_count": count, **self._context(each)}))
        for kind, sketch in (("test_gate", gates), ("task", tasks)):
            for name, each in sketch.items():
                basics = {"gate_type": "UNIT"} if kind == "test_gate" else {}
                made.append(self._birth(kind, name, self.ids[name], basics | self._context(each)))
        made.sort(key=lambda birth: ("run", "workstream", "test_gate", "task").index(birth.definition.type))
        with transaction(self.runtime.database) as connection:
            creation.deliver(connection, made)  # all at once, because gates and workstreams refer to each other
            if phases:
                plans.store(connection, self.run, body={"phases": phases}, directory="/")

    def add(self, kind: str, name: str, **sketch: Any) -> None:
        """Add an instance to an existing run, without running engine and scheduler."""
        self.ids[name] = uuid7()
        with transaction(self.runtime.database) as connection:
            creation.deliver(connection, [self._birth(kind, name, self.ids[name], self._context(sketch))])

    def fire(self, name: str | UUID, trigger: str, **data: Any) -> str:
        """Fire a trigger and run engine and scheduler until nothing is left; returns the trigger's status."""
        ref = self.ids.get(name, self.run) if isinstance(name, str) else name
        receipt = fire(self.client, ref, trigger, by="test", data=data)
        self.settle()
        return self.client.wait([receipt.request_id], timeout_seconds=5)[0].status

    def settle(self) -> int:
        """Run engine and scheduler until nothing is left, and start the gates asked for; returns the requests taken."""
        total = 0
        while True:
            done = sum(
                self.runtime.applier.apply_partition(partition).taken for partition in partitions_due(self.runtime)
            )
            total += done
            if schedule(self.runtime, self.run) + done == 0 and not (self.starts_gates and self.start_gates()):
                return total

    def start_gates(self) -> int:
        """Play the node that takes up gates: start each that is asked for; returns their number."""
        return self.effects("run_gate", lambda gate: fire(self.client, gate, "gate_started", by="test"))

    def start(self) -> None:
        self.settle()
        self.fire("run", "start")

    def work(self, name: str, exit_code: int = 0, **said: Any) -> None:
        """Play the worker of a queued task: start it and report its end."""
        self.begin(name)
        self.fire(name, "execution_completed" if exit_code == 0 else "execution_failed", exit_code=exit_code, **said)

    def succeed(self, *names: str) -> None:
        """Work these tasks and merge: with that, the run succeeds."""
        for name in names:
            self.work(name)
        self.land()
        assert self.state("run") == "succeeded"

    def begin(self, name: str) -> None:
        worker = self.worker()
        assert self.fire(name, "worker_started", worker_id=str(worker), capabilities=[]) == "applied", self.state(name)

    def worker(self) -> UUID:
        """The stage's worker, for `worker_started`."""
        if "worker" not in self.ids:
            context = {"capabilities": [], "max_concurrent_tasks": 1_000, **OF_SECRET}
            made = self.client.create("worker", "W-1", project=self.project, context=context)
            self.ids["worker"] = made["id"]
        return self.ids["worker"]

    def state(self, name: str) -> str:
        found = self.dba.execute(
            "SELECT current_state FROM workflow_instances WHERE id = %s", (self.ids.get(name, self.run),)
        ).fetchone()
        assert found
        return str(found[0])

    def states(self, *names: str) -> dict[str, str]:
        """Name -> state, for these names or for all."""
        rows = self.dba.execute("SELECT id, current_state FROM workflow_instances WHERE project = %s", (self.project,))
        by_id = dict(rows.fetchall())
        wanted = names or [*self.ids, "run"]
        return {name: by_id[self.ids.get(name, self.run)] for name in wanted if self.ids.get(name, self.run) in by_id}

    def queued(self) -> list[str]:
        return [name for name, state in self.states().items() if state == "queued"]

    def land(self, outcome: str = "validation_passed") -> None:
        """Play the effect that merges a workstream: report to each workstream that waits for it."""
        self.effects("land_workstream", lambda workflow_id: self.fire(workflow_id, outcome))

    def effects(self, name: str, perform: Callable[[UUID], object]) -> int:
        """Perform all pending effects with this name; returns their number."""
        rows = self.dba.execute(
            "UPDATE effects SET status = 'done', finished_at = now() WHERE name = %s AND status = 'pending'"
            " RETURNING workflow_id",
            (name,),
        ).fetchall()
        for (workflow_id,) in rows:
            perform(workflow_id)
        return len(rows)

    def _birth(self, kind: str, name: str, id_: UUID, context: Mapping[str, Any]) -> Birth:
        definition = self.runtime.catalogue.get(kind)
        return Birth(definition, name, self.project, "test", {"run_id": str(self.run), **context}, id_)

    def _context(self, sketch: Mapping[str, Any]) -> dict[str, Any]:
        context: dict[str, Any] = {}
        for key, value in sketch.items():
            if key == "workstream":
                context["workstream_id"] = str(self.ids[value])
            elif key in ("depends_on", "gates", "blocked_by_gates"):
                context[key] = [str(self.ids[each]) for each in value]
            else:
                context["is_critical" if key == "critical" else key] = value
        return context
