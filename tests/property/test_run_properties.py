"""Runs against a plain model: random plans, workers, gates and people; every run ends as the rules say (docs/spec)."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import psycopg
import pytest
from hypothesis import Phase, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from interlock.db.audit import verify
from interlock.db.connection import transaction
from interlock.db.operations import invariants
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from tests.property.crews import Crew
from tests.property.play import Play, Theatre, finish, take
from tests.property.players import Fates, play_together
from tests.property.run_model import World
from tests.property.run_overrides import override, override_blindly
from tests.property.run_rules import broken_rules
from tests.property.run_things import ENDED
from tests.property.runs import Run, many_tasks, runs
from tests.rights import fire, operate
from tests.running import Stage

pytestmark = pytest.mark.integration
Dba = psycopg.Connection[Any]

EXAMPLES, ROUNDS = 20, 4
MADE = {"completed", "failed", "cancelled", "pending"}  # the states that overrides lead to
PHASES = (Phase.generate, Phase.shrink)  # explaining a failure would take minutes more
VERBS = (
    ["answer"] * 12
    + ["time_passes"] * 2
    + ["late", "again", "pause", "pause", "resume", "interfere"]
    + ["override"] * 4
)
STEPS = st.lists(st.lists(st.sampled_from(VERBS), min_size=1, max_size=4), max_size=12)
CREWS = 9
DEEDS = (
    *["hire"] * 2 + ["claim"] * 8 + ["finish"] * 4 + ["others"] * 4,
    *["silent", "killed", "killed", "heard_of", "leave", "drain", "time_passes", "interfere"],
)

TAKEN_AWAY = """
SELECT count(*) FROM trigger_requests WHERE request_id LIKE 'interlock:claim:%:given_back:%' AND status = 'applied'"""
STATES = """
SELECT entity_id, current_state FROM workflow_instances
 WHERE workflow_type NOT IN ('worker', 'approval', 'operator_grant')"""
BY_HAND = "SELECT to_state, count(*) FROM workflow_transitions WHERE metadata ? 'operator' GROUP BY to_state"
REFUSED = "SELECT trigger, result FROM trigger_requests WHERE status NOT IN ('applied', 'superseded', 'scheduled')"
SIGNALLED = """
SELECT (SELECT count(*) FROM workflow_instances WHERE workflow_type IN ('workstream', 'task', 'test_gate'))
     + (SELECT count(*) FROM workflow_transitions
         WHERE workflow_type IN ('run', 'workstream', 'task', 'test_gate'))"""


@pytest.fixture
def make_stage(make_runtime: Callable[..., Runtime], dba: Dba) -> Callable[[], Stage]:
    runtime = make_runtime()
    operate(runtime, "ann")
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
        play, chances = begun(make_stage(), run, well), Random(seed)
        for number, step in enumerate(steps):
            if number == unstarted:
                play.say(play.world.run, "start")
            for verb in step:
                if verb == "override":
                    override(play, chances)
                else:
                    take(play, verb, chances)
            play.end_step()
        if play.world.run.state == "pending":
            play.say(play.world.run, "start")
            play.end_step()
        for _ in range(chances.randrange(8)):  # in the thick of it
            override(play, chances)
            for verb in ("answer", "answer", "pause" if chances.random() < 0.1 else "answer"):
                take(play, verb, chances)
            play.end_step()
        finish(play, chances)
        assert not_ended(play) == []
        assert broken_rules(dba, play.stage.run) == []

    by_hand: dict[str, int] = {}
    for _ in range(ROUNDS):  # which overrides are drawn is chance
        play_it()
        by_hand = dict(dba.execute(BY_HAND).fetchall())
        if by_hand.keys() >= MADE and sum(by_hand.values()) > EXAMPLES:
            break
    assert by_hand.keys() >= MADE, by_hand
    assert sum(by_hand.values()) > EXAMPLES  # operators too
    verdict = verify.verify(make_stage().runtime.database)
    assert verdict.ok, verdict.problems
    assert verdict.transitions > 10 * EXAMPLES  # they did move


def test_every_run_ends_whoever_of_its_crew_is_killed(make_stage: Callable[[], Stage], dba: Dba) -> None:
    @hypothesis_settings(max_examples=CREWS, report_multiple_bugs=False, phases=PHASES)
    @given(run=runs(), deeds=st.sampled_from([0, 10, 20, *[30] * 8]), seed=st.integers(0, 2**32 - 1))
    def play_it(run: Run, deeds: int, seed: int) -> None:
        play, chances = begun(make_stage(), run, 8), Random(seed)
        crew = Crew(play, chances)
        play.say(play.world.run, "start")
        play.end_step()
        for deed in ["hire", "claim", "killed", *chances.choices(DEEDS, k=deeds), "hire", "claim", "killed"]:
            crew.take(deed)
        crew.carry_on()
        assert not_ended(play) == []
        assert broken_rules(dba, play.stage.run) == []
        with transaction(play.stage.runtime.database) as connection:
            assert invariants.broken(connection, limit=5) == []

    taken = 0
    for _ in range(ROUNDS):  # as above
        play_it()
        (taken,) = dba.execute(TAKEN_AWAY).fetchone() or (0,)
        if taken > CREWS // 3:
            break
    assert taken > CREWS // 3  # it did come to that
    assert verify.verify(make_stage().runtime.database).ok


def begun(stage: Stage, run: Run, well: int) -> Play:
    """A run that was submitted, beside its model; what it leaves out is skipped."""
    play = Play(stage, run.world(), well)
    stage.submit(run.workstreams, run.tasks, run.gates)
    stage.ids["run"] = stage.run
    for each in play.world.workstreams:
        if each.name in run.skipped:
            play.say(each, "skip", reason="left out")
    play.end_step()
    return play


def not_ended(play: Play) -> list[str]:
    """What of a run has not ended."""
    return [each.name for each in play.world.things() if not each.ended]


def test_several_schedulers_at_once_lose_nothing(make_stage: Callable[[], Stage], settings: Settings, dba: Dba) -> None:
    run, fates = many_tasks(25)
    stage, world = make_stage(), run.world()
    stage.submit(run.workstreams, run.tasks, run.gates)
    worker = stage.worker()
    fire(stage.client, stage.run, "start", by="test")
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


def test_overrides_among_busy_schedulers_break_no_rule(
    make_stage: Callable[[], Stage], settings: Settings, dba: Dba
) -> None:
    run, fates = many_tasks(25)
    stage, chances = make_stage(), Random(2026)
    stage.submit(run.workstreams, run.tasks, run.gates)
    worker = stage.worker()
    fire(stage.client, stage.run, "start", by="test")
    with ThreadPoolExecutor(1) as pool:
        played = pool.submit(play_together, settings, stage.run, worker, fates, players=3)
        done = 0
        while not played.done():
            done += override_blindly(stage, [*run.tasks], chances)
        assert min(played.result()) > 0
    assert done > 10
    assert stage.state("run") in ENDED
    assert broken_rules(dba, stage.run) == []
    verdict = verify.verify(stage.runtime.database)
    assert verdict.ok, verdict.problems
