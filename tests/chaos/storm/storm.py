"""A storm: random runs whose workers and commands are killed; whoever helps only does as `interlock stuck` says."""

import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from interlock.db.audit import verify
from interlock.db.connection import transaction
from interlock.db.operations import invariants
from interlock.workers.client.client import Client
from interlock.workers.orchestration.submission import submit
from interlock.workers.overrides.rerun_gate import rerun_gate
from interlock.workers.overrides.reset_task import reset_task
from interlock.workers.overrides.subscriptions import WantedEvents, subscribe
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.pool.registration import CREW
from interlock.workflows.errors import Refused
from interlock.workflows.plan.read import read_plan
from tests.chaos.installation import Installation
from tests.chaos.storm.faults import Faults
from tests.chaos.storm.offers import ANOTHER, HEALER, Healer, Offer
from tests.chaos.storm.plans import make_repository, random_plan
from tests.rights import operate
from tests.subscribing import endpoint, firsts, from_then_on
from tests.waiting import eventually
from tests.webhooks import Webhook, webhook

PASSER_BY = "passer-by"
TOLD = ["run", "workstream", "task"]  # what a subscriber wants to know of
ROUND_SECONDS = 2.0
SETTLE_SECONDS = 240.0
OPEN = """
SELECT id FROM workflow_instances
 WHERE workflow_type = 'run' AND current_state IN ('pending', 'running') AND project = %s"""
IN_STATE = """
SELECT id FROM workflow_instances
 WHERE workflow_type = %s AND current_state = %s AND project = ANY (%s) ORDER BY id"""
UNENDED = """
SELECT i.id::text, i.workflow_type, i.definition_version, i.current_state, i.entity_id
  FROM workflow_instances i
  JOIN definition_states s
    ON s.type = i.workflow_type AND s.version = i.definition_version AND s.state = i.current_state
 WHERE NOT s.terminal AND i.project = ANY (%s) ORDER BY i.id"""
STATES = """
SELECT workflow_type, jsonb_object_agg(current_state, count) FROM (
       SELECT workflow_type, current_state, count(*) FROM workflow_instances
        WHERE project = ANY (%s) GROUP BY 1, 2) counted
 GROUP BY workflow_type ORDER BY workflow_type"""


@dataclass
class Storm:
    """One storm on an installation.

    Attributes:
        directory: for the repository and the secrets of agents.
        seed: what chance draws from; the storm's project is named after it.
        at_once: how many runs are under way at a time.
        calm_seconds: the longest time between two faults.
    """

    installation: Installation
    directory: Path
    seed: int
    at_once: int = 3
    calm_seconds: float = 5.0
    submitted: int = 0
    interfered: "Counter[str]" = field(default_factory=Counter)
    _over: threading.Event = field(default_factory=threading.Event)
    _errors: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chances = Random(self.seed)
        self.faults = Faults(self.installation, Random(f"{self.seed} faults"))
        self.projects = [f"storm-{self.seed}", CREW]
        self.healer = Healer(self.installation, self.directory, self.projects)

    def rage(self, seconds: float) -> list[str]:
        """Storm for so long, let everything end, and judge; returns what is wrong, one sentence each."""
        make_repository(self.directory / "repository")
        with self.installation.client() as client, webhook() as world:
            operate(client.runtime, HEALER, ANOTHER, PASSER_BY)
            order, wanted = OverrideOrder(HEALER, "the storm"), WantedEvents(types=TOLD, every_project=True)
            subscribe(client.runtime, f"storm-{self.seed}", endpoint(world), order, secrets=["file:own"], wanted=wanted)
            return self._raged(seconds, world)

    def _raged(self, seconds: float, world: Webhook) -> list[str]:
        try:
            with self._meanwhile(self._strike), self._meanwhile(self._traffic):
                self._heal(lambda: False, seconds)
            self._heal(self._all_ended, SETTLE_SECONDS)
            return [*self.healer.faults, *self._wrong(), *self._untold(world)]
        finally:
            self.healer.end()

    def summary(self) -> dict[str, Any]:
        """Counts, for people."""
        return {
            "seed": self.seed,
            "instances by their last state": dict(self.installation.sql(STATES, self.projects)),
            "faults made": dict(self.faults.made),
            "people's interference": dict(self.interfered),
            "stuck was asked": self.healer.asked,
            "offered commands carried out": dict(self.healer.done),
            "offers that came too late": self.healer.too_late,
        }

    @contextlib.contextmanager
    def _meanwhile(self, work: Callable[[Random], None]) -> Iterator[None]:
        """Do something again and again in a thread of its own; what goes wrong there is raised here."""
        thread = threading.Thread(target=self._again, args=(work, Random(f"{self.seed} {work.__name__}")), daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()
            for error in self._errors:
                raise error

    def _again(self, work: Callable[[Random], None], chances: Random) -> None:
        try:
            while not self._over.wait(chances.uniform(0.5, self.calm_seconds)):
                work(chances)
        except BaseException as error:
            self._errors.append(error)

    def _strike(self, _chances: Random) -> None:
        self.faults.strike()

    def _heal(self, enough: Callable[[], bool], seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self._errors and not enough():
            self.healer.round()
            threading.Event().wait(ROUND_SECONDS)
        self.faults.end()

    def _all_ended(self) -> bool:
        return not self._open_runs()

    def _open_runs(self) -> list[str]:
        return [str(id_) for (id_,) in self.installation.sql(OPEN, self.projects[0])]

    def _traffic(self, chances: Random) -> None:
        """Submit a run if there is room for one, and let people interfere now and then."""
        with self.installation.client() as client:
            if len(self._open_runs()) < self.at_once:
                self._submit(client, chances)
            with contextlib.suppress(Refused):
                self._interfere(client, chances)

    def _submit(self, client: Client, chances: Random) -> None:
        self.submitted += 1
        plan = read_plan(json.dumps({**random_plan(chances, self.submitted), "project": self.projects[0]}))
        submit(client.runtime, plan, by=PASSER_BY, directory=self.directory)
        if self.submitted % 4 == 0:
            context = {"author": PASSER_BY}
            name = f"review-{self.submitted}"
            client.create("pr_review", name, project=self.projects[0], context=context)

    def _interfere(self, client: Client, chances: Random) -> None:
        order = OverrideOrder(PASSER_BY, "the storm")
        deeds: tuple[tuple[int, str, tuple[str, str], Callable[[UUID], object]], ...] = (
            (10, "nothing", ("run", "running"), lambda _: None),
            (3, "pause", ("workstream", "executing"), lambda ref: client.fire(ref, "pause", by=PASSER_BY)),
            (1, "resume", ("workstream", "paused"), lambda ref: client.fire(ref, "resume", by=PASSER_BY)),
            (
                1,
                "cancel",
                ("run", "running"),
                lambda ref: client.fire(ref, "cancel", by=PASSER_BY, data={"reason": "enough"}),
            ),
            (
                1,
                "suspend",
                ("worker", "idle"),
                lambda ref: client.fire(ref, "suspend", by=PASSER_BY, data={"reason": "the storm"}),
            ),
            (2, "reset", ("task", "failed"), lambda ref: reset_task(client.runtime, str(ref), order)),
            (2, "rerun", ("test_gate", "FAILED"), lambda ref: rerun_gate(client.runtime, str(ref), order)),
        )
        (_, name, among, act) = chances.choices(deeds, [weight for weight, *_ in deeds])[0]
        if found := self.installation.sql(IN_STATE, *among, self.projects):
            act(chances.choice(found)[0])
            self.interfered[name] += 1

    def _wrong(self) -> Iterator[str]:
        waits = {each.workflow_id: each for each in self.healer.list_stuck("--all")}
        for run in self._open_runs():
            yield f"the run {run} has not ended: {waits.get(run)}"
        if self._open_runs():
            yield from (f"waits: {each}" for each in waits.values())
        yield from self._dead_ends(waits)
        with self.installation.client() as client:
            verdict = verify.verify(client.runtime.database)
            if not verdict.ok:
                yield f"audit verify: {verdict.problems[:5]}"
            with transaction(client.runtime.database) as connection:
                yield from (f"contradiction: {dict(each)}" for each in invariants.broken(connection, limit=20))

    def _untold(self, world: Webhook) -> Iterator[str]:
        with self.installation.client() as client:
            expected = from_then_on(client.runtime, f"storm-{self.seed}", *TOLD)

        try:
            eventually(lambda: firsts(world)[: len(expected)] == expected, timeout=SETTLE_SECONDS, every=1.0)
        except AssertionError:
            yield f"the subscriber was told of {len(firsts(world))} events of {len(expected)}, or in another order"

    def _dead_ends(self, waits: dict[str, Offer]) -> Iterator[str]:
        with self.installation.client() as client:
            resting = client.runtime.catalogue.resting
        for id_, type_, version, state, name in self.installation.sql(UNENDED, self.projects):
            if (type_, version, state) not in resting and id_ not in waits:
                yield f"nothing leads on: {type_} {name} is {state}, and `interlock stuck --all` does not list it"
