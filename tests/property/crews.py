"""A run carried out by a crew: workers claim for themselves, report under their claims, fall silent, leave and drain.

Some tasks call a tool, which fails at times: its breaker says when they may be claimed. People pause, resume, override.

What a kill is to PostgreSQL: heartbeats that stop, and after that, perhaps, a report that comes too late.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any, LiteralString, TypeVar
from uuid import UUID

import pytest
from hypothesis import note
from uuid_utils.compat import uuid7

from interlock.beat import heartbeats
from interlock.db.connection import transaction
from interlock.db.core import requests
from interlock.workers.circuit_breakers import calling_for_claim
from interlock.workers.circuit_breakers import known as breaker_known
from interlock.workers.overrides.phases import freeze, thaw
from interlock.workers.pool import claims, registration
from interlock.workers.pool.claims import Claim, StaleClaim
from interlock.workers.pool.registration import AGENT, EXECUTE, WorkerDescription
from interlock.workers.pool.report import Report
from tests import crewing
from tests.callers import TOOL, let_the_cooldown_pass
from tests.property.breaker_model import Caller, Model
from tests.property.play import Play, answer, interfere, take
from tests.property.run_model import OPEN
from tests.property.run_overrides import do_again, move_all, move_phase, override
from tests.property.run_things import Task
from tests.rights import known, remember

T = TypeVar("T")

MOST = 3  # workers at a time
SILENT_SECONDS, GONE_SECONDS = 120.0, 300.0
THRESHOLD = 1  # failures that open the tool's breaker
ENDS = (
    *[Report("execution_completed", {"exit_code": 0})] * 3,
    Report("execution_failed", {"exit_code": 1, "error": "no"}),
    Report("timeout_exceeded", {"error": "too slow"}),
)
RULES: dict[str, LiteralString] = {
    "WORKER-4 a worker's load is the number of its live claims, and no more than it may be": """
        SELECT w.name, w.current_load FROM workers w
         WHERE w.current_load > w.max_concurrent_tasks
            OR w.current_load <> (SELECT count(*) FROM task_claims c
                                   WHERE c.worker_id = w.worker_id AND c.revoked_at IS NULL AND c.ended_at IS NULL)""",
    "WORKER-2 who can take no more is busy, and only who can take no more": """
        SELECT name, state FROM workers
         WHERE state IN ('busy', 'BUSY', 'DRAINING') AND current_load < max_concurrent_tasks
            OR state IN ('idle', 'IDLE') AND current_load = max_concurrent_tasks""",
    "WORKER-12 who is shut down holds nothing": """
        SELECT name FROM workers w WHERE state IN ('shutdown', 'TERMINATED')
           AND (shutdown_at IS NULL OR current_load > 0
                OR EXISTS (SELECT FROM task_claims c WHERE c.worker_id = w.worker_id AND c.ended_at IS NULL))""",
    "TASK-16 a task runs in the hands of the one worker whose claim counts": """
        SELECT t.task_id FROM tasks t
         WHERE (SELECT array_agg(c.worker_id) FROM task_claims c
                 WHERE c.task_id = t.task_id AND c.revoked_at IS NULL AND c.ended_at IS NULL)
               IS DISTINCT FROM CASE t.state WHEN 'running' THEN ARRAY[t.worker_id] END""",
}


@dataclass
class Worker:
    """One of the crew, as whoever started it knows it. `claims` are those it has not let go of."""

    id: UUID
    of_engine: bool = False  # takes agents' tasks only (UET-9)
    phases: tuple[str, ...] = ()  # takes tasks of these only (WORKER-3); without any, of all
    claims: list[Claim] = field(default_factory=list)


@dataclass
class Crew:
    """Those who carry out one run, and who of them is there. Whatever happens, the model is told what it should do."""

    play: Play
    chances: Random
    workers: list[Worker] = field(default_factory=list)
    breaker: Model = field(default_factory=lambda: Model(THRESHOLD))
    calls: dict[int, Caller] = field(default_factory=dict)

    def __post_init__(self) -> None:
        context = {"tool_id": TOOL, "failure_threshold": THRESHOLD, "cooldown_seconds": 7_200.0}
        self.play.stage.client.create("circuit_breaker", TOOL, project=self.play.stage.project, context=context)

    @property
    def runtime(self) -> Any:
        return self.play.stage.runtime

    def take(self, verb: str) -> None:
        """One thing happens; afterwards everything is as the model says, and the crew's own rules hold."""
        getattr(self, verb)()
        self.play.end_step()
        self._end_calls()
        assert breaker_known(self.runtime, self.play.stage.project, TOOL).state == self.breaker.state
        found = {name: self.play.stage.dba.execute(rule).fetchall() for name, rule in RULES.items()}
        assert {name: rows for name, rows in found.items() if rows} == {}

    def hire(self) -> None:
        """An agent comes, or a worker of the execution engine."""
        if len(self.workers) < MOST:
            stage, name = self.play.stage, f"hand-{uuid7()}"
            # Not all of them: an engine's worker takes no commands, and nobody would be left to call the tool.
            choosy = sum(each.of_engine or bool(each.phases) for each in self.workers)
            of_engine, phases = False, tuple[str, ...]()
            if choosy < MOST - 1:
                of_engine = self.chances.random() < 0.4
                phases = self.chances.choice([(), (), ("design",), ("release", "default")])
            names = [f"{stage.run}/{each.name}" for each in self.play.world.workstreams if not each.retry_of]
            affinity = {"workstreams": names, "phases": list(phases)}  # no other runs
            if of_engine:
                made = crewing.engine_worker(stage.client, stage.project, name, affinity=affinity)
            else:
                description = WorkerDescription(name, (AGENT, EXECUTE), affinity, self.chances.randint(1, 2))
                made = remember(registration.register(self.runtime, description))
            self.workers.append(Worker(made, of_engine, phases))

    def claim(self) -> None:
        """A worker asks for work: it gets some exactly if there is any, and it has room."""
        if not (worker := self._one_of(self.workers)) or not self._is_alive(worker):
            return
        queued = {
            self.play.stage.ids[task.name]: task
            for task in self.play.world.tasks
            if task.state == "queued" and task.home.state in OPEN and self._may_claim(worker, task)
        }
        may = self._state_of(worker) in (("idle", True), ("IDLE", True))
        claim = claims.take(self.runtime, known(worker.id))
        assert (claim is not None) == (may and bool(queued))
        if claim is not None:
            note(f"{queued[claim.task_id].name}: claimed")
            assert self.play.world.told(queued[claim.task_id], "worker_started")
            worker.claims.append(claim)
            if queued[claim.task_id].tool:
                self.calls[claim.id] = Caller(claim, self.breaker.period)
                self.breaker.admit(self.calls[claim.id])

    def _may_claim(self, worker: Worker, task: Task) -> bool:
        """Whether it fits, and why not."""
        if task.tool and (worker.of_engine or not self.breaker.lets_through):
            return False
        if task.home.held:
            self.play.did["not claimed: frozen"] += 1
            return False
        if worker.phases and (task.home.phase.name if task.home.phase else "default") not in worker.phases:
            self.play.did["not claimed: another phase"] += 1
            return False
        return True

    def finish(self) -> None:
        """A worker reports; where its claim no longer counts, nothing comes of it."""
        if not (worker := self._one_of(each for each in self.workers if each.claims)):
            return
        claim, report = self.chances.choice(worker.claims), self.chances.choice(ENDS)
        worker.claims.remove(claim)
        self._report(claim, report)

    def silent(self) -> None:
        """Heartbeats stop: for so long that a busy worker is given up, or anybody is."""
        if worker := self._one_of(self.workers):
            self._fall_silent(worker, self.chances.choice([SILENT_SECONDS, GONE_SECONDS]))

    def killed(self) -> None:
        """As `silent`, for ever; but what it had done is reported all the same, too late."""
        if worker := self._one_of(self.workers):
            self._fall_silent(worker, GONE_SECONDS)
            self.play.end_step()
            self._sweep()  # one that was busy was unresponsive first
            self._let_go(worker)

    def heard_of(self) -> None:
        """Everybody who is there says so; who was given up for dead goes, its reports come too late."""
        for worker in list(self.workers):
            self._is_alive(worker)

    def leave(self) -> None:
        """A worker goes, and what it holds is given back."""
        if worker := self._one_of(self.workers):
            self._lose(worker)
            registration.leave(self.runtime, known(worker.id), "left")
            self.play.stage.settle()
            self._let_go(worker)

    def drain(self) -> None:
        """A worker is to go once it holds nothing: it takes no more."""
        if worker := self._one_of(self.workers):
            registration.drain(self.runtime, known(worker.id))

    def others(self) -> None:
        """A gate's command ends, a retry's time comes, a workstream lands."""
        if thing := self._one_of(each for each in self.play.world.open() if each.state not in ("queued", "running")):
            answer(self.play, thing, self.chances)

    def time_passes(self) -> None:
        """A task takes too long."""
        if task := self._one_of(each for each in self._open() if each.state == "running"):
            self.play.let_time_pass(task)

    def interfere(self) -> None:
        """A person wants something no more."""
        interfere(self.play, self.chances)

    def pause(self) -> None:
        """A person pauses a workstream, or lets one go on."""
        take(self.play, self.chances.choice(["pause", "resume"]), self.chances)

    def by_hand(self) -> None:
        """An operator overrides something: a task, a workstream, or a gate that is run again."""
        override(self.play, self.chances)

    def phase(self) -> None:
        """An operator freezes or thaws a phase."""
        move_phase(self.play, self.chances)

    def freeze(self) -> None:
        """An operator freezes every phase."""
        move_all(self.play, freeze)

    def thaw(self) -> None:
        """An operator thaws every phase."""
        move_all(self.play, thaw)

    def cool_down(self) -> None:
        """The cooldown of the tool's breaker is over."""
        let_the_cooldown_pass(self.runtime.settings)
        with transaction(self.runtime.database) as connection:
            requests.wake(connection, limit=1_000)
        self.breaker.cool_down()

    def carry_on(self) -> None:
        """Work until the run has ended."""
        world = self.play.world
        self.play.say(world.run, "start")
        times = 2
        for _ in range(40 * len(world.things())):
            if world.run.ended and not world.open():
                while self.workers:
                    self.take("leave")
                return
            for each in [each for each in world.workstreams if each.state == "paused"]:
                self.play.say(each, "resume")
            times -= times > 0 and do_again(self.play, self.chances)
            if not world.open():
                move_all(self.play, thaw)
            for verb in (
                "heard_of",
                "hire",
                *["cool_down"] * (self.breaker.state == "OPEN"),
                "claim",
                "finish",
                "others",
            ):
                self.take(verb)
        raise AssertionError("it does not end")

    def _is_alive(self, worker: Worker) -> bool:
        """It says that it is; one that was given up for dead is told so, and goes."""
        if not registration.heartbeat(self.runtime, [known(worker.id)]):
            self._let_go(worker)
            return False
        self.play.stage.settle()
        return True

    def _fall_silent(self, worker: Worker, seconds: float) -> None:
        crewing.silence(self.play.stage.dba, worker.id, seconds + 1)
        note("a worker falls silent")
        self._lose(worker)
        self._sweep()

    def _sweep(self) -> None:
        with transaction(self.runtime.database) as connection:
            heartbeats.heartbeats(connection, silent_seconds=SILENT_SECONDS, gone_seconds=GONE_SECONDS)

    def _lose(self, worker: Worker) -> None:
        """What it runs is taken from it, which is a failure like another."""
        for claim in worker.claims:
            if claims.is_current(self.runtime, claim.token):
                assert self.play.world.told(self._task(claim), "execution_failed")

    def _let_go(self, worker: Worker) -> None:
        """It is gone; what it still reports is refused."""
        self.workers.remove(worker)
        for claim in worker.claims:
            with pytest.raises(StaleClaim):
                claims.finish(self.runtime, known(worker.id), claim.token, ENDS[0])

    def _report(self, claim: Claim, report: Report) -> None:
        if not claims.is_current(self.runtime, claim.token):
            with pytest.raises(StaleClaim):
                claims.finish(self.runtime, known(claim.worker_id), claim.token, report)
            return
        note(f"{self._task(claim).name}: {report.trigger}")
        if call := self.calls.get(claim.id):
            self._tell_tool(call, claim, fails=report.trigger != "execution_completed")
        claims.finish(self.runtime, known(claim.worker_id), claim.token, report)
        assert self.play.world.told(self._task(claim), report.trigger)

    def _tell_tool(self, call: Caller, claim: Claim, *, fails: bool) -> None:
        """How the call of the tool ended, as the worker says before it reports on the task."""
        project = self.play.stage.project
        with calling_for_claim(self.runtime, project, TOOL, by="crew", claim_id=claim.id) as made:
            if fails:
                made.failed("as drawn")
        self.breaker.report(call, fails=fails, period=self.breaker.period)

    def _end_calls(self) -> None:
        """A trial ends with its claim, whatever ended that (BREAKER-5)."""
        for claim_id, call in list(self.calls.items()):
            assert isinstance(call.how, Claim)
            if self._task(call.how).state != "running":
                del self.calls[claim_id]
                self.breaker.give_back(call)

    def _task(self, claim: Claim) -> Task:
        ids = self.play.stage.ids
        return next(task for task in self.play.world.tasks if ids[task.name] == claim.task_id)

    def _open(self) -> Iterable[Task]:
        return (each for each in self.play.world.open() if isinstance(each, Task))

    def _state_of(self, worker: Worker) -> tuple[str, bool]:
        """Its state, and whether it has room and takes more."""
        found = self.play.stage.dba.execute(
            "SELECT state, current_load < max_concurrent_tasks AND NOT draining FROM workers WHERE worker_id = %s",
            (worker.id,),
        ).fetchone()
        assert found
        return found[0], found[1]

    def _one_of(self, things: Iterable[T]) -> T | None:
        found = [*things]
        return self.chances.choice(found) if found else None
