"""Carry out runs in process: submission, engine and scheduler as they are; the work itself takes no time."""

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
from db import requests
from db.connect import transaction
from supervisor.servers import Servers
from workers.client import Client
from workers.orchestration.scheduler import schedule
from workers.orchestration.submission import submit
from workers.runtime import Runtime
from workflows.plan.plan import Plan

CONTEXT_BYTES = 4 * 1024**2  # the default lets a task depend on some 6,500 others by name
EVENTS = ("worker_started", "execution_completed")
CAPABILITIES = ["interlock:execute"]
READY = """
SELECT t.task_id, t.state FROM tasks t
 WHERE t.run_id = %(run)s AND t.state IN ('queued', 'running')"""
LANDING = "SELECT ws_id FROM workstreams WHERE run_id = %(run)s AND state = 'validating'"
STATE = "SELECT state FROM runs WHERE run_id = %(run)s"
COMPLETED = "SELECT completed FROM workstream_counts c JOIN workstreams w USING (ws_id) WHERE w.run_id = %(run)s"


@dataclass
class Spent:
    """Seconds, by who spent them, and the tasks completed meanwhile.

    A run's submission and its beginning, when each of its tasks is looked at once, belong to all its tasks.
    """

    submission: float = 0.0
    beginning: float = 0.0
    engine: float = 0.0
    scheduler: float = 0.0
    tasks: int = 0

    def per_task(self, submitted: int) -> float:
        """Milliseconds a task, of all four; those of submission and beginning are spread over the tasks submitted."""
        whole, each = self.submission + self.beginning, self.engine + self.scheduler
        return 1_000 * (whole / submitted + each / self.tasks)

    def scheduling(self) -> float:
        """Milliseconds a task of the scheduler's passes alone, from the beginning on."""
        return 1_000 * self.scheduler / self.tasks

    @contextmanager
    def counting(self, who: str) -> Iterator[None]:
        """Count the block's time."""
        began = time.perf_counter()
        yield
        setattr(self, who, getattr(self, who) + time.perf_counter() - began)


class Carrier:
    """Makes runs of one side's database and carries them out, alone."""

    def __init__(self, stage: Stage, servers: Servers) -> None:
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))  # warnings: nobody reads the rest
        self.runtime = Runtime(stage.settings(servers).model_copy(update={"context_limit_bytes": CONTEXT_BYTES}))
        self._folder = stage.home.path
        self._database = psycopg.connect(servers.database_url, autocommit=True)
        can = {"capabilities": CAPABILITIES}
        self._worker = Client(self.runtime).create("worker", "bench", project_id=uuid7(), context=can)["id"]

    def carry_out(self, tasks: Sequence[dict[str, Any]], *, only: int | None = None) -> Spent:
        """Submit a run of these tasks (`id`, `depends_on`) and carry it out, or `only` so many of its tasks.

        Raises:
            RuntimeError: it did not succeed; then the figures would be a lie.
        """
        spent = Spent()
        plan = Plan.model_validate({"name": "bench", "workstreams": [{"id": "w", "tasks": tasks}]})
        with spent.counting("submission"):
            run = submit(self.runtime, plan, by="bench", directory=self._folder).id
        with spent.counting("beginning"):
            self._settle(run, Spent())
        while (only is None or spent.tasks < only) and self._work(run):
            self._settle(run, spent)
            spent.tasks = self._ask(COMPLETED, run)[0][0]
        if only is None:
            self._land(run, spent)
        else:
            self._leave(run)
        return spent

    def analyze(self) -> None:
        """What autovacuum does every minute: plans made for small tables are made anew."""
        self._database.execute("VACUUM ANALYZE")

    def close(self) -> None:
        """Give back the connections."""
        self._database.close()
        self.runtime.close()

    def _settle(self, run: UUID, spent: Spent) -> None:
        while True:
            with transaction(self.runtime.database) as connection:
                lanes = [row["lane"] for row in requests.lanes_due(connection)]
            with spent.counting("engine"):
                for lane in lanes:
                    self.runtime.applier.apply_lane(lane)
            with spent.counting("scheduler"):
                read = schedule(self.runtime, run)
            if not lanes and not read:
                return

    def _work(self, run: UUID) -> int:
        """Begin what is queued, and end what is running; how many tasks."""
        said = {"worker_id": str(self._worker), "capabilities": CAPABILITIES, "exit_code": 0}
        found = self._ask(READY, run)
        self._accept([(id_, EVENTS[state == "running"], said) for id_, state in found])
        return len(found)

    def _land(self, run: UUID, spent: Spent) -> None:
        self._accept([(id_, "validation_passed", {}) for (id_,) in self._ask(LANDING, run)])
        self._settle(run, spent)
        if self._ask(STATE, run) != [("succeeded",)]:
            raise RuntimeError(f"the run ended {self._ask(STATE, run)}")

    def _leave(self, run: UUID) -> None:
        self._accept([(run, "cancel", {})])
        self._settle(run, Spent())

    def _accept(self, wanted: Sequence[tuple[UUID, str, dict[str, Any]]]) -> None:
        rows = [
            {
                "request_id": (request_id := str(uuid7())),
                "fingerprint": request_id.encode().hex(),
                "workflow_id": id_,
                "trigger": trigger,
                "triggered_by": "bench",
                "metadata": said,
                "origin": "agent",
            }
            for id_, trigger, said in wanted
        ]
        with transaction(self.runtime.database) as connection:
            requests.accept(connection, rows)

    def _ask(self, question: str, run: UUID) -> list[tuple[Any, ...]]:
        return self._database.execute(question, {"run": run}).fetchall()
