"""Runs against a plain model: random plans, workers, gates and people; every run ends as the rules say (docs/spec)."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from random import Random
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import Phase, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from interlock.db.audit import verify
from interlock.db.connection import transaction
from interlock.db.operations import invariants
from interlock.workers.overrides.phases import thaw
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from tests.callers import TOOL
from tests.property.crews import Crew
from tests.property.play import APPROVER, Play, Theatre, finish, take
from tests.property.players import Fates, play_together
from tests.property.run_model import World
from tests.property.run_overrides import (
    SAID,
    do_again,
    move_all,
    move_phase,
    override,
    override_blindly,
    send_to_validation,
)
from tests.property.run_rules import broken_rules
from tests.property.run_things import ENDED
from tests.property.runs import Run, many_tasks, runs, with_phases, with_tools
from tests.rights import fire, operate
from tests.running import Stage

pytestmark = pytest.mark.integration
Dba = psycopg.Connection[Any]

EXAMPLES, ROUNDS = 16, 12
BY_HAND = {each.__name__ for each in SAID} | {"freeze", "thaw"}
DECISIONS = {"approve": "succeeded", "reject": "failed", "expire": "failed"}  # on a landing -> how its run ends
PHASES = (Phase.generate, Phase.shrink)  # explaining a failure would take minutes more
VERBS = (
    ["answer"] * 12
    + ["time_passes"] * 2
    + ["late", "again", "pause", "pause", "resume", "interfere"]
    + ["override"] * 4
    + ["phase"]
)
STEPS = st.lists(st.lists(st.sampled_from(VERBS), min_size=1, max_size=4), max_size=12)
CREWS = 9
OF_CREWS = {"freeze", "thaw", "retry_workstream", "not claimed: frozen", "not claimed: another phase"}
DEEDS = (
    *["hire"] * 2 + ["claim"] * 8 + ["finish"] * 4 + ["others"] * 4,
    *["silent", "killed", "killed", "heard_of", "leave", "drain", "time_passes", "interfere"],
    *["pause", "by_hand", "by_hand", "by_hand", "cool_down", "cool_down", "phase"],
)

BEGINNING = ("hire", "freeze", "claim", "thaw", "claim", "pause", "killed")

TAKEN_AWAY = """
SELECT count(*) FROM trigger_requests WHERE request_id LIKE 'interlock:claim:%:given_back:%' AND status = 'applied'"""
HAPPENED = """
SELECT count(*) FILTER (WHERE trigger = 'failure_threshold_exceeded') > 0
   AND count(*) FILTER (WHERE trigger = 'pause') > 0
   AND count(*) FILTER (WHERE metadata ? 'operator') > 0 FROM workflow_transitions"""
STATES = """
SELECT entity_id, current_state FROM workflow_instances
 WHERE workflow_type NOT IN ('worker', 'approval', 'operator_grant')"""
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
        chances = Random(f"{seed} {played}")  # in CI every round draws the same
        overrides = partial(override, wanted=missing or chances.sample(sorted(BY_HAND), 3))
        play = begun(make_stage(), with_phases(run, chances), well)
        for number, step in enumerate(steps):
            if number == unstarted:
                play.say(play.world.run, "start")
            for verb in step:
                if verb == "override":
                    overrides(play, chances)
                elif verb == "phase":
                    move_phase(play, chances)
                else:
                    take(play, verb, chances)
            play.end_step()
        if play.world.run.state == "pending":
            play.say(play.world.run, "start")
            play.end_step()
        for _ in range(chances.randrange(8)):  # in the thick of it
            chances.choices((overrides, move_phase, send_to_validation), (7, 2, 1))[0](play, chances)
            for verb in ("answer", "answer", "pause" if chances.random() < 0.1 else "answer"):
                take(play, verb, chances)
            play.end_step()
        while not finish(play, chances, do_again):
            move_all(play, thaw)
            play.end_step()
        assert not_ended(play) == []
        assert broken_rules(dba, play.stage.run) == []
        did.update(play.did if did["rerun_gate"] else play.did + rerun_by_hand(make_stage()))
        for decision in (each for each in DECISIONS if not did[each]):
            did.update(decided(make_stage(), decision))

    did: Counter[str] = Counter()
    missing = set[str]()
    for played in range(ROUNDS):  # noqa: B007 - which overrides are drawn is chance; `play_it` reads it
        play_it()
        if not (missing := {each for each in BY_HAND if not did[each]}):
            break
    assert not missing
    verdict = verify.verify(make_stage().runtime.database)
    assert verdict.ok, verdict.problems
    assert verdict.transitions > 10 * EXAMPLES  # they did move


def decided(stage: Stage, decision: str) -> Counter[str]:
    """A workstream waits for its landing's approval, which few that are drawn come to; what was done."""
    task = {"depends_on": [], "critical": False, "max_retries": 0, "gates": [], "blocked_by_gates": []}
    home = {"depends_on": [], "critical": False, "gates": [], "phase_id": "design"}
    design = ("design",)
    play = begun(stage, Run({"w": home}, {"w/a": {**task, "workstream": "w"}}, {}, (), design, design), 10)
    (work,), (landing,) = play.world.tasks, play.world.workstreams
    for thing, trigger, data in (
        (play.world.run, "start", {}),
        (work, "worker_started", {}),
        (work, "execution_completed", {"exit_code": 0}),
        (landing, "validation_passed", {}),  # refused: nobody has approved it
    ):
        play.say(thing, trigger, **data)
        play.end_step()
    assert not landing.landing
    (asked,) = play.world.approvals
    play.say(asked, decision)
    play.end_step()
    assert finish(play, Random(0), lambda *_: False)
    assert play.world.run.state == DECISIONS[decision]
    return play.did


def rerun_by_hand(stage: Stage) -> Counter[str]:
    """A gate fails for good while its workstream goes on, which is rarely drawn, and is run again; what was done."""
    task = {
        "workstream": "w",
        "depends_on": [],
        "critical": False,
        "max_retries": 0,
        "gates": [],
        "blocked_by_gates": [],
    }
    gate = {"workstream": "w", "moment": "task", "reruns_left": 0, "depends_on": []}
    home = {"depends_on": [], "critical": False, "gates": []}
    play = begun(stage, Run({"w": home}, {"w/a": {**task, "gates": ["w/g"]}, "w/b": task}, {"w/g": gate}, ()), 10)
    (judged, _), (judge,), chances = play.world.tasks, play.world.gates, Random(0)
    for thing, trigger, data in (
        (play.world.run, "start", {}),
        (judged, "worker_started", {}),
        (judged, "execution_completed", {"exit_code": 0}),
        (judge, "gate_started", {}),
        (judge, "gate_failed", {"exit_code": 1}),
    ):
        play.say(thing, trigger, **data)
        play.end_step()
    assert do_again(play, chances)
    assert finish(play, chances, lambda *_: False)
    assert play.world.run.state == "succeeded"
    return play.did


def test_every_run_ends_whoever_of_its_crew_is_killed(make_stage: Callable[[], Stage], dba: Dba) -> None:
    @hypothesis_settings(max_examples=CREWS, report_multiple_bugs=False, phases=PHASES)
    @given(run=runs(), deeds=st.sampled_from([0, 10, 20, *[30] * 8]), seed=st.integers(0, 2**32 - 1))
    def play_it(run: Run, deeds: int, seed: int) -> None:
        chances = Random(f"{seed} {number}")  # in CI every round draws the same
        play = begun(make_stage(), with_phases(with_tools(run, TOOL, chances), chances), 6, kind="agent")
        crew = Crew(play, chances)
        play.say(play.world.run, "start")
        play.end_step()
        for deed in [*BEGINNING, *chances.choices(DEEDS, k=deeds), "hire", "claim", "killed"]:
            crew.take(deed)
        crew.carry_on()
        assert not_ended(play) == []
        assert broken_rules(dba, play.stage.run) == []
        with transaction(play.stage.runtime.database) as connection:
            assert invariants.broken(connection, limit=5) == []
        did.update(play.did)

    did: Counter[str] = Counter()
    taken, happened = 0, False
    for number in range(ROUNDS):  # noqa: B007 - as above; `play_it` reads it
        play_it()
        (taken,) = dba.execute(TAKEN_AWAY).fetchone() or (0,)
        (happened,) = dba.execute(HAPPENED).fetchone() or (False,)
        missing = {each for each in OF_CREWS if not did[each]}
        if taken > CREWS // 3 and happened and not missing:
            break
    assert not missing
    assert taken > CREWS // 3  # it did come to that
    assert happened, "no breaker opened, nothing was paused, or no operator acted"
    assert verify.verify(make_stage().runtime.database).ok


def begun(stage: Stage, run: Run, well: int, *, kind: str = "command") -> Play:
    """A run that was submitted, beside its model; what it leaves out is skipped."""
    play = Play(stage, run.world(), well)
    for phase in run.phases:
        stage.ids[phase] = UUID(str(stage.client.create("phase", phase, project=stage.project)["id"]))
        fire(stage.client, stage.ids[phase], "open", by="test")
    homes = {name: {"name": f"{stage.run}/{name}", **each} for name, each in run.workstreams.items()}
    tasks = {name: {"kind": kind, **each} for name, each in run.tasks.items()}
    stage.submit(homes, tasks, run.gates, {each: {"approvers": [APPROVER]} for each in run.approved})
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
    run, fates = many_tasks(9)
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
    run, fates = many_tasks(9)
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
