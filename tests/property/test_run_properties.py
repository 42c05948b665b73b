"""Runs against a plain model: random plans, workers, gates and people; every run ends as the rules say (SSOT 1-3)."""

from collections.abc import Callable
from random import Random
from typing import Any

import psycopg
import pytest
from hypothesis import Phase, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from db import audit
from tests.property.play import Play, Theatre, finish, take
from tests.property.players import Fates, play_together
from tests.property.run_model import World
from tests.property.run_rules import broken_rules
from tests.property.run_things import ENDED
from tests.property.runs import Run, many_tasks, runs
from tests.running import Stage
from workers.runtime import Runtime
from workers.settings import Settings

pytestmark = pytest.mark.integration
Dba = psycopg.Connection[Any]

EXAMPLES = 70
PHASES = (Phase.generate, Phase.shrink)  # explaining a failure would take minutes more
VERBS = ["answer"] * 12 + ["time_passes"] * 2 + ["late", "again", "pause", "pause", "resume", "interfere"]
STEPS = st.lists(st.lists(st.sampled_from(VERBS), min_size=1, max_size=4), max_size=12)
STATES = """
SELECT entity_id, current_state FROM workflow_instances WHERE workflow_type NOT IN ('worker', 'approval')"""
REFUSED = "SELECT trigger, result FROM trigger_requests WHERE status NOT IN ('applied', 'superseded', 'scheduled')"
SIGNALLED = """
SELECT (SELECT count(*) FROM workflow_instances WHERE workflow_type IN ('workstream', 'task', 'test_gate'))
     + (SELECT count(*) FROM workflow_transitions
         WHERE workflow_type IN ('run', 'workstream', 'task', 'test_gate'))"""


@pytest.fixture
def make_stage(make_runtime: Callable[..., Runtime], dba: Dba) -> Callable[[], Stage]:
    runtime = make_runtime()
    return lambda: Theatre(runtime, dba)


def test_every_run_ends_as_the_plain_model_says(make_stage: Callable[[], Stage], dba: Dba) -> None:
    @hypothesis_settings(max_examples=EXAMPLES, report_multiple_bugs=False, phases=PHASES)
    @given(
        run=runs(),
        steps=STEPS,
        unstarted=st.integers(0, 2),
        well=st.sampled_from([6, 8, 2]),
        seed=st.integers(0, 2**32 - 1),  # Hypothesis's own chances would nearly always let everything go well
    )
    def play_it(run: Run, steps: list[Any], unstarted: int, well: int, seed: int) -> None:
        play, chances = Play(make_stage(), run.world(), well), Random(seed)
        play.stage.submit(run.workstreams, run.tasks, run.gates)
        play.stage.ids["run"] = play.stage.run
        for each in play.world.workstreams:
            if each.name in run.skipped:
                play.say(each, "skip", reason="left out")
        play.end_step()
        for number, step in enumerate(steps):
            if number == unstarted:
                play.say(play.world.run, "start")
            for verb in step:
                take(play, verb, chances)
            play.end_step()
        finish(play, chances)
        assert all(each.state in ENDED for each in (play.world.run, *play.world.workstreams, *play.world.tasks))
        assert broken_rules(dba, play.stage.run) == []

    play_it()
    verdict = audit.verify(make_stage().runtime.database)
    assert verdict.ok, verdict.problems
    assert verdict.transitions > 10 * EXAMPLES  # they did move


def test_several_schedulers_at_once_lose_nothing(make_stage: Callable[[], Stage], settings: Settings, dba: Dba) -> None:
    run, fates = many_tasks()
    stage, world = make_stage(), run.world()
    stage.submit(run.workstreams, run.tasks, run.gates)
    worker = stage.worker()
    stage.client.fire(stage.run, "start", by="test")
    read = play_together(settings, stage.run, worker, fates, players=4)
    play_the_model(world, fates)
    states = dba.execute(STATES).fetchall()
    assert {name.replace("~", "#"): state for name, state in states} == {
        each.name: each.state for each in world.things()
    }
    assert broken_rules(dba, stage.run) == []
    assert dba.execute(REFUSED).fetchall() == []
    assert dba.execute(SIGNALLED).fetchone() == (sum(read),)  # each was read once
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
