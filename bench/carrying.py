"""Carry out runs in process: real submission, engine and scheduler; the work itself takes no time."""

import gc
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
import structlog
from uuid_utils.compat import uuid7

from bench.stage import Stage
from interlock.db.connection import transaction
from interlock.db.core import requests
from interlock.db.core.request_rows import Right, of_claim, of_lease
from interlock.db.schema import in_schema
from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.engine import creation
from interlock.workers.engine.creation import Birth
from interlock.workers.orchestration.scheduler import schedule
from interlock.workers.orchestration.submission import submit
from interlock.workers.pool import claims, registration
from interlock.workers.pool.registration import WorkerDescription
from interlock.workers.pool.report import Report
from interlock.workers.runtime import Runtime
from interlock.workers.system.garbage import collect_seldom
from interlock.workflows.plan.plan import Plan

CONTEXT_BYTES = 4 * 1024**2  # with the default, a task can depend on only some 6,500 others by name
EVENTS = ("worker_started", "execution_completed")
CAPABILITIES = ["interlock:execute"]
DONE = Report("execution_completed", {"exit_code": 0})
READY = in_schema("""
SELECT t.task_id, t.state FROM interlock.tasks t
 WHERE t.run_id = %(run)s AND t.state IN ('queued', 'running')""")
WORKERS = 100  # a claim's end updates its worker: in one statement, thousands of a single one would take squared time
ROOM = in_schema("UPDATE interlock.workers SET max_concurrent_tasks = 1000000")
CLAIM = in_schema("""
INSERT INTO interlock.task_claims (task_id, run_id, worker_id)
SELECT task_id, run_id, (%(workers)s::uuid[])[1 + row_number() OVER () %% cardinality(%(workers)s::uuid[])]
  FROM interlock.tasks WHERE task_id = ANY (%(ids)s) ON CONFLICT DO NOTHING
""")
END = in_schema("UPDATE interlock.task_claims SET ended_at = now() WHERE task_id = ANY (%(ids)s) AND ended_at IS NULL")
CLAIMED = in_schema("""
SELECT task_id, token, worker_id FROM interlock.task_claims
 WHERE task_id = ANY (%(ids)s) AND revoked_at IS NULL AND ended_at IS NULL
""")
LEASE = in_schema("""
INSERT INTO interlock.effects (id, workflow_id, version, name, status, token, leased_by, lease_until)
SELECT gen_random_uuid(), id, version, 'notice', 'leased', 1, 'bench', now() + interval '1 hour'
  FROM interlock.workflow_instances WHERE id = ANY (%(ids)s)
RETURNING workflow_id, id
""")
LANDING = in_schema("SELECT ws_id FROM interlock.workstreams WHERE run_id = %(run)s AND state = 'validating'")
STATE = in_schema("SELECT state FROM interlock.runs WHERE run_id = %(run)s")
COMPLETED = in_schema(
    "SELECT completed FROM interlock.workstream_counts c JOIN interlock.workstreams w USING (ws_id)"
    " WHERE w.run_id = %(run)s"
)


@dataclass
class Spent:
    """Seconds by part of the system, and the tasks completed meanwhile.

    The time of a run's submission, and of its beginning, when each task is examined once, is spread over all its tasks.
    """

    submission: float = 0.0
    beginning: float = 0.0
    engine: float = 0.0
    scheduler: float = 0.0
    tasks: int = 0

    def per_task(self, submitted: int) -> float:
        """Milliseconds per task, all four together; submission and beginning are divided by the tasks submitted."""
        whole, each = self.submission + self.beginning, self.engine + self.scheduler
        return 1_000 * (whole / submitted + each / self.tasks)

    def scheduling(self) -> float:
        """Milliseconds per task of the scheduler's passes alone, after the beginning."""
        return 1_000 * self.scheduler / self.tasks

    @contextmanager
    def counting(self, who: str) -> Iterator[None]:
        """Add the block's time to `who`."""
        began = time.perf_counter()
        yield
        setattr(self, who, getattr(self, who) + time.perf_counter() - began)


class Carrier:
    """Makes runs in one side's database and carries them out without other processes."""

    def __init__(self, stage: Stage, servers: Servers) -> None:
        self._collecting = gc.get_threshold()
        gc.freeze()  # as in a node, which does not look at what it imported
        collect_seldom()
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))  # 30: warnings and above
        self.runtime = Runtime(stage.settings(servers).model_copy(update={"context_limit_bytes": CONTEXT_BYTES}))
        self._folder = stage.home.path.with_name("plan")  # no command may run in the home
        self._folder.mkdir(exist_ok=True)
        # Neither claims without a worker's secret nor VACUUM of others' tables are the engine's.
        self._database = psycopg.connect(servers.superuser_url, autocommit=True)
        can = {"capabilities": CAPABILITIES}
        worker, project = self.runtime.catalogue.get("worker"), str(uuid7())
        born = [Birth(worker, f"bench-{number}", project, "bench", can) for number in range(WORKERS)]
        with transaction(self.runtime.database) as connection:
            creation.deliver(connection, born)
        self._workers = [each.id for each in born]
        self._database.execute(ROOM)
        self._worker = registration.register(self.runtime, WorkerDescription("bench-alone", tuple(CAPABILITIES)))

    def carry_out(self, tasks: Sequence[dict[str, Any]], *, only: int | None = None) -> Spent:
        """Submit a run of these tasks (`id`, `depends_on`) and carry out all of them, or `only` that many.

        All: whatever can begin begins at once, by raw SQL. `only` some: one worker claims one after the other, and
        reports it; each claim and each report counts as the engine's.

        Raises:
            RuntimeError: the run did not succeed, so the figures would be wrong.
        """
        spent = Spent()
        run = self.begin(tasks, spent)
        if only is None:
            while self._work(run):
                self._settle(run, spent)
                spent.tasks = self._ask(COMPLETED, run)[0][0]
            self._land(run, spent)
        else:
            while spent.tasks < only:
                self._work_one(spent)
                self._settle(run, spent)
                spent.tasks += 1
            self._leave(run)
        return spent

    def begin(self, tasks: Sequence[dict[str, Any]], spent: Spent | None = None) -> UUID:
        """Submit a run of these tasks; those that can begin are queued. Returns the run."""
        spent = spent or Spent()
        plan = Plan.model_validate({"name": "bench", "workstreams": [{"id": "w", "tasks": tasks}]})
        with spent.counting("submission"):
            run = submit(self.runtime, plan, by="bench", directory=self._folder).id
        with spent.counting("beginning"):
            self._settle(run, Spent())
        return run

    def analyze(self) -> None:
        """VACUUM ANALYZE, as autovacuum does every minute, so that no query plans for small tables remain."""
        self._database.execute("VACUUM ANALYZE")

    def close(self) -> None:
        """Close the connections."""
        self._database.close()
        self.runtime.close()
        gc.set_threshold(*self._collecting)

    def _settle(self, run: UUID, spent: Spent) -> None:
        while True:
            with transaction(self.runtime.database) as connection:
                partitions = [row["partition"] for row in requests.partitions_due(connection)]
            with spent.counting("engine"):
                for partition in partitions:
                    self.runtime.applier.apply_partition(partition)
            with spent.counting("scheduler"):
                read = schedule(self.runtime, run)
            if not partitions and not read:
                return

    def _work(self, run: UUID) -> int:
        """Begin queued tasks and end running ones; returns their number."""
        said = {"capabilities": CAPABILITIES, "exit_code": 0}
        found = self._ask(READY, run)
        ids = {"ids": [id_ for id_, _ in found], "workers": self._workers}
        self._database.execute(CLAIM, ids)
        held = {
            id_: (said | {"worker_id": str(worker)}, of_claim(token))
            for id_, token, worker in self._database.execute(CLAIMED, ids)
        }
        self._accept([(id_, EVENTS[state == "running"], *held[id_]) for id_, state in found])
        self._database.execute(END, {"ids": [id_ for id_, state in found if state == "running"]})
        return len(found)

    def _work_one(self, spent: Spent) -> None:
        with spent.counting("engine"):
            claim = claims.take(self.runtime, self._worker)
        if claim is None:
            raise RuntimeError("the worker found no task, so the figures would be wrong")
        with spent.counting("engine"):
            claims.finish(self.runtime, self._worker, claim.token, DONE)

    def _land(self, run: UUID, spent: Spent) -> None:
        leased = self._database.execute(LEASE, {"ids": [id_ for (id_,) in self._ask(LANDING, run)]})
        self._accept([(id_, "validation_passed", {}, of_lease(effect, 1)) for id_, effect in leased])
        self._settle(run, spent)
        if self._ask(STATE, run) != [("succeeded",)]:
            raise RuntimeError(f"the run ended {self._ask(STATE, run)}")

    def _leave(self, run: UUID) -> None:
        self._accept([(run, "cancel", {}, Right("anyone"))])
        self._settle(run, Spent())

    def _accept(self, wanted: Sequence[tuple[UUID, str, dict[str, Any], Right]]) -> None:
        rows = [
            {
                "request_id": (request_id := str(uuid7())),
                "fingerprint": request_id.encode().hex(),
                "workflow_id": id_,
                "trigger": trigger,
                "triggered_by": "bench",
                "metadata": said,
                "origin": "agent",
                **right.columns,
            }
            for id_, trigger, said, right in wanted
        ]
        with transaction(self.runtime.database) as connection:
            requests.accept(connection, rows)

    def _ask(self, question: str, run: UUID) -> list[tuple[Any, ...]]:
        return self._database.execute(question, {"run": run}).fetchall()
