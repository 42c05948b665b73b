"""Runs against a plain model: random plans, workers, gates and people; every run ends as the rules say (SSOT 1-3)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import psycopg
import pytest
from hypothesis import given, note
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from db import audit, requests
from db.connect import transaction
from tests.property.run_model import ENDED, Gate, Task, Thing, Workstream, World
from tests.property.run_rules import broken_rules
from tests.property.players import Fates, play_together
from tests.property.runs import Run, many_tasks, runs
from tests.running import Stage
from workers.firing import Firing
from workers.orchestration.scheduler import schedule
from workers.runtime import Runtime
from workers.settings import Settings

pytestmark = pytest.mark.integration
Dba = "psycopg.Connection[Any]"

REPORTS: dict[str, list[tuple[str, dict[str, Any]]]] = {  # what may be said of a thing in a state, the best first
    "queued": [("worker_started", {})],
    "running": [
        ("execution_completed", {"exit_code": 0}),
        ("execution_failed", {"exit_code": 1, "error": "no"}),
        ("timeout_exceeded", {}),
        ("execution_failed", {"reason": "its worker was lost"}),
    ],
    "RUNNING": [("gate_passed", {"exit_code": 0}), ("gate_failed", {"exit_code": 1, "stderr": "no"})],
    "validating": [("validation_passed", {}), ("validation_failed", {"reason": "conflict"})],
}
REFUSABLE: list[tuple[type[Thing], str, dict[str, Any]]] = [
    *((Task, trigger, data) for state in ("queued", "running") for trigger, data in REPORTS[state]),
    (Task, "retry_delay_elapsed", {}),
    *((Gate, trigger, data) for trigger, data in REPORTS["RUNNING"]),
    *((Workstream, trigger, data) for trigger, data in REPORTS["validating"]),
]
VERBS = ["answer"] * 12 + ["time_passes"] * 2 + ["stale", "again", "pause", "resume", "resume"]
VERBS += ["cancel_task", "cancel_workstream", "skip", "cancel_run"]
STATES = "SELECT entity_id, current_state FROM workflow_instances WHERE id = %s OR workflow_type NOT IN ('run', 'worker')"
REFUSED = "SELECT trigger, result FROM trigger_requests WHERE status NOT IN ('applied', 'superseded', 'scheduled')"
SIGNALLED = """
SELECT (SELECT count(*) FROM workflow_transitions t JOIN workflow_instances i ON i.id = t.workflow_id
         WHERE i.id = %s OR i.workflow_type IN ('workstream', 'task', 'test_gate'))
     + (SELECT count(*) FROM workflow_instances WHERE workflow_type IN ('workstream', 'task', 'test_gate') AND %s IS NOT NULL)
"""
MANY = st.integers(0, 999)
STEPS = st.lists(st.lists(st.tuples(st.sampled_from(VERBS), MANY, MANY), min_size=1, max_size=4), max_size=12)


@dataclass
class Play:
    """A run on the stage and its model. What is said to one is said to the other, and both must agree each time."""

    stage: Stage
    world: World
    said: dict[str, bool] = field(default_factory=dict)
    firings: list[Firing] = field(default_factory=list)
    spoken: list[Thing] = field(default_factory=list)

    def say(self, thing: Thing, trigger: str, **data: Any) -> None:
        """Fire a trigger, once the step is over."""
        if thing in self.spoken:
            return
        self.spoken.append(thing)
        request_id = f"{self.stage.run}/{len(self.said)}"
        if trigger == "worker_started":
            data = {"worker_id": str(self.stage.worker()), "capabilities": []}
        self.said[request_id] = self.world.told(thing, trigger)
        note(f"{thing.name}: {trigger} {'' if self.said[request_id] else '(to be refused)'}")
        self.firings.append(Firing(self.stage.ids[thing.name], trigger, "test", request_id, data))

    def let_time_pass(self, thing: Thing) -> None:
        """The deadline of whatever state the thing is in runs out."""
        self.spoken.append(thing)
        note(f"{thing.name}: its time is over")
        self.stage.dba.execute(
            "UPDATE trigger_requests SET not_before = now() WHERE status = 'scheduled' AND workflow_id = %s",
            (self.stage.ids[thing.name],),
        )
        with transaction(self.stage.runtime.database) as connection:
            requests.wake(connection, limit=1_000)
        self.world.told(thing, {"running": "timeout_exceeded", "retrying": "retry_delay_elapsed"}.get(thing.state, ""))

    def end_step(self) -> None:
        """Let both settle, and compare."""
        fired = [firing.request_id for firing in self.firings]
        self.stage.client.fire_many(self.firings)
        self.firings, self.spoken = [], []
        self.stage.settle()
        self.world.settle()
        self._meet_reruns()
        states = self.stage.states(*(thing.name for thing in self.world.things()))
        assert states == {thing.name: thing.state for thing in self.world.things()}
        with transaction(self.stage.runtime.database) as connection:
            statuses = {name: row["status"] for name, row in requests.by_ids(connection, fired).items()}
        assert statuses == {name: "applied" if self.said[name] else "rejected" for name in fired}

    def repeat(self, pick: int) -> None:
        """A report is delivered a second time: it was answered before, and changes nothing."""
        firing = self.firings[pick % len(self.firings)]
        self.firings.append(firing)

    def late(self) -> Iterator[tuple[Thing, str, dict[str, Any]]]:
        """Reports that are a second one of the same, or too late."""
        for thing in self.world.things():
            for kind, trigger, data in REFUSABLE:
                if isinstance(thing, kind) and self.world.answer(thing, trigger) is None:
                    yield thing, trigger, data

    def _meet_reruns(self) -> None:
        """Find the gates that were run again: they go by the name of the first and a number."""
        ids = self.stage.ids
        for name in (gate.name for gate in self.world.gates if gate.name not in ids):
            base, _, number = name.partition("#")
            before = ids[base if number == "1" else f"{base}#{int(number) - 1}"]
            found = self.stage.dba.execute(
                "SELECT source_id FROM workflow_links WHERE target_id = %s AND role = 'retry_of'", (before,)
            ).fetchall()
            assert len(found) == 1, f"{name} should have been run again"
            ids[name] = found[0][0]


class Theatre(Stage):
    """A stage that looks only where something is due, and puts up with being told the same twice."""

    def settle(self) -> int:
        total = 0
        while True:
            with transaction(self.runtime.database) as connection:
                lanes = [row["lane"] for row in requests.lanes_due(connection)]
            done = sum(self.runtime.applier.apply_lane(lane).taken for lane in lanes)
            total += done
            if schedule(self.runtime, self.run) + done == 0:
                return total


def take(play: Play, verb: str, pick: int, luck: int) -> None:
    """One thing happens, chosen by two numbers among all that can."""

    def one_of(things: list[Any]) -> Any:
        return things[pick % len(things)] if things else None

    world = play.world
    match verb:
        case "answer" if thing := one_of(play.world.open()):
            answer(play, thing, luck)
        case "time_passes" if thing := one_of([*world.tasks]):
            if thing not in play.spoken:
                play.let_time_pass(thing)
        case "stale":
            if late := one_of([*play.late()]):
                thing, trigger, data = late
                play.say(thing, trigger, **data)
        case "again" if play.firings:
            play.repeat(pick)
        case "pause" if thing := one_of([each for each in world.workstreams if each.state == "executing"]):
            play.say(thing, "pause")
        case "resume" if thing := one_of([each for each in world.workstreams if each.state == "paused"]):
            play.say(thing, "resume")
        case "cancel_task" if thing := one_of(world.tasks):
            play.say(thing, "user_cancelled")
        case "cancel_workstream" if thing := one_of(world.workstreams):
            play.say(thing, "user_cancelled")
        case "skip" if thing := one_of(world.workstreams):
            play.say(thing, "skip", reason="not wanted")
        case "cancel_run" if luck % 4 == 0:
            play.say(world.run, "cancel", reason="enough")


def answer(play: Play, thing: Thing, luck: int) -> None:
    """Whoever works for an open thing reports: mostly well."""
    if thing in play.spoken:
        return
    if thing.state == "retrying":
        play.let_time_pass(thing)
        return
    reports = REPORTS[thing.state]
    trigger, data = reports[0] if luck % 10 < 6 else reports[luck % len(reports)]
    play.say(thing, trigger, **data)


def finish(play: Play, chances: Random) -> None:
    """Answer whatever is open until the run has ended; then what still runs, which nobody waits for."""
    world = play.world
    for _ in range(12 * len(world.things())):
        if world.run.ended and not world.open():
            return
        paused = [each for each in world.workstreams if each.state == "paused"]
        opened = world.open()
        assert world.run.state == "pending" or paused or opened, "it waits for ever"
        if world.run.state == "pending":
            play.say(world.run, "start")
        for thing in paused:
            play.say(thing, "resume")
        for thing in chances.sample(opened, chances.randint(min(1, len(opened)), len(opened))):
            answer(play, thing, chances.randrange(1_000))
        play.end_step()
    raise AssertionError("it does not end")


@pytest.fixture
def make_stage(make_runtime: Callable[..., Runtime], dba: Dba) -> Callable[[], Stage]:
    runtime = make_runtime()
    return lambda: Theatre(runtime, dba)


def test_every_run_ends_as_the_plain_model_says(make_stage: Callable[[], Stage], dba: Dba) -> None:
    @hypothesis_settings(max_examples=EXAMPLES, report_multiple_bugs=False, phases=(PHASES))
    @given(run=runs(), steps=STEPS, unstarted=st.integers(0, 2), chances=st.randoms(use_true_random=False))
    def play_it(run: Run, steps: list[Any], unstarted: int, chances: Random) -> None:
        play = Play(make_stage(), run.world())
        play.stage.submit(run.workstreams, run.tasks, run.gates)
        play.stage.ids["run"] = play.stage.run
        for each in play.world.workstreams:
            if each.name in run.skipped:
                play.say(each, "skip", reason="left out")
        play.end_step()
        for number, step in enumerate(steps):
            if number == unstarted:
                play.say(play.world.run, "start")
            for verb, pick, luck in step:
                take(play, verb, pick, luck)
            play.end_step()
        finish(play, chances)
        assert all(each.state in ENDED for each in (play.world.run, *play.world.workstreams, *play.world.tasks))
        assert broken_rules(dba, play.stage.run) == []

    play_it()
    verdict = audit.verify(make_stage().runtime.database)
    assert verdict.ok, verdict.problems
    assert verdict.transitions > 10 * EXAMPLES  # they did move


import os
from hypothesis import Phase
PHASES = [Phase.generate] + ([Phase.shrink] if os.environ.get("SHRINK") else [])
EXAMPLES = int(os.environ.get("EXAMPLES", 40))


def test_several_schedulers_at_once_lose_nothing(make_stage: Callable[[], Stage], settings: Settings, dba: Dba) -> None:
    run, fates = many_tasks()
    stage, world = make_stage(), run.world()
    stage.submit(run.workstreams, run.tasks, run.gates)
    worker = stage.worker()
    stage.client.fire(stage.run, "start", by="test")
    read = play_together(settings, stage.run, worker, fates, players=4)
    play_the_model(world, fates)
    states = dba.execute(STATES, (stage.run,)).fetchall()
    assert {name.replace("~", "#"): state for name, state in states} == {each.name: each.state for each in world.things()}
    assert broken_rules(dba, stage.run) == []
    assert dba.execute(REFUSED).fetchall() == []
    assert [sum(read)] == [*dba.execute(SIGNALLED, (stage.run, stage.run)).fetchone()]  # each was read once
    assert min(read) > 0


def play_the_model(world: World, fates: Fates) -> None:
    """Let the same be said to the model as the players say."""
    world.told(world.run, "start")
    world.settle()
    while opened := world.open():
        for thing in opened:
            world.told(thing, fates.trigger(thing.name, thing.state, getattr(thing, "retries", 0)))
        world.settle()
    assert world.run.ended
