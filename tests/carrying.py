"""Carry out plans in process, with a real worker, scheduler, effects and repository."""

import json
from pathlib import Path
from typing import Any

from sqlalchemy import RowMapping

from interlock.db.connection import transaction
from interlock.db.core import effects
from interlock.workers import effect_runner
from interlock.workers.client.client import Client
from interlock.workers.orchestration.submission import Run, submit
from interlock.workers.pool import work_loop
from interlock.workflows.plan.read import read_plan
from tests.crewing import hand
from tests.driving import drain_all
from tests.rights import known
from tests.working import read, settle


class PlanStage:
    """Runs plans of a folder. Agents' tasks are left to the test."""

    def __init__(self, client: Client, folder: Path) -> None:
        self.client, self.runtime, self.folder = client, client.runtime, folder
        self.hand = known(hand(client.runtime))

    def run(self, *workstreams: dict[str, Any], **more: Any) -> Run:
        plan = {"name": "p", "defaults": {"retries": 0}, "workstreams": workstreams, **more}
        made = submit(self.runtime, read_plan(json.dumps(plan)), by="ann", directory=self.folder)
        self.work(made)
        return made

    def work(self, run: Run) -> None:
        """Do whatever can be done by commands."""
        while self.step(run):
            pass

    def step(self, run: Run) -> int:
        """Do what is due now; returns how much that was."""
        settle(self.client, run.id)
        done = len([effect_runner.run(self.runtime, each["id"]) for each in self._due()])
        done += work_loop.work(self.runtime, self.hand)
        drain_all(self.runtime)
        return done

    def _due(self) -> list[RowMapping]:
        with transaction(self.runtime.database) as connection:
            return list(effects.due(connection, limit=100))

    def said(self, run: Run, task: str) -> dict[str, Any]:
        """What the task's worker reported last."""
        id_ = [row["id"] for row in read(self.client, run.id)["task"] if row["name"] == task][-1]
        events = [each for each in self.client.history(id_) if each["from_state"] == "running"]
        return dict(events[-1]["metadata"])
