"""What operators do to a run: said of the model in plain words, and done to the real one, or refused by both."""

from collections.abc import Callable, Collection
from contextlib import nullcontext
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import note

from interlock.workers.overrides.at_once import CannotMove
from interlock.workers.overrides.phases import freeze, thaw
from interlock.workers.overrides.rerun_gate import rerun_gate
from interlock.workers.overrides.reset_task import reset_task, skip_step
from interlock.workers.overrides.retry_workstream import retry_workstream
from interlock.workers.overrides.tasks import complete_task, fail_task, unblock_task
from interlock.workers.overrides.transaction import CannotOverride, Done, OverrideOrder
from interlock.workers.overrides.workstreams_and_patches import fail_workstream, validate_workstream
from tests.property.play import Play
from tests.property.run_anew import SPENT, anew, rerun, retry
from tests.property.run_model import World
from tests.property.run_things import Gate, Task, Thing, Workstream
from tests.running import Stage

BY_HAND = OverrideOrder("ann", "as drawn")
Names = dict[str, str]
COMMANDS: list[Callable[..., Done]] = [
    *[complete_task, fail_task, skip_step, reset_task, unblock_task, rerun_gate, retry_workstream] * 3,
    *[fail_workstream, validate_workstream],
]
TO = {freeze: "frozen", thaw: "open"}
AGAIN = (rerun_gate, retry_workstream)
OF_WORKSTREAMS = (fail_workstream, validate_workstream, retry_workstream)


def override(play: Play, chances: Random, wanted: Collection[str] = ()) -> None:
    """One override, by chance, but each `wanted` one first; only between steps, so that nothing else is on its way."""
    if play.firings:
        return
    likely = [each for each in COMMANDS if _likely(play.world, each)]
    if first := [each for each in likely if each.__name__ in wanted and not play.did[each.__name__]]:
        _override(play, chances.choice(first), chances)
    elif not (chances.random() < 0.5 and do_again(play, chances)):
        _override(play, chances.choice(likely if likely and chances.random() < 0.5 else COMMANDS), chances)


def do_again(play: Play, chances: Random) -> bool:
    """What is done again by hand is, if there is something and nothing is on its way; most of the time there is not."""
    possible = [] if play.firings else [each for each in AGAIN if _likely(play.world, each)]
    if possible:
        _override(play, chances.choice(possible), chances)
    return bool(possible)


def send_to_validation(play: Play, chances: Random) -> None:
    """A workstream is paused, what of it has not ended is cancelled, and it is validated: rarely drawn one by one."""
    if play.firings or not (executing := [each for each in play.world.workstreams if each.state == "executing"]):
        return
    home = chances.choice(executing)
    play.say(home, "pause")
    for task in (each for each in play.world.tasks if each.home is home and not each.ended):
        play.say(task, "user_cancelled")
    play.end_step()
    _apply(play, validate_workstream, home, chances)


def _override(play: Play, command: Callable[..., Done], chances: Random) -> None:
    if not (things := _things(play.world, command)):
        return
    likely = _likely(play.world, command)
    _apply(play, command, chances.choice(likely if likely and chances.random() < 0.8 else things), chances)


def _apply(play: Play, command: Callable[..., Done], thing: Any, chances: Random) -> None:
    if chances.random() < 0.3:
        _rehearse(play, command, thing)
    if command is retry_workstream:
        play.world.settle()  # what follows from its end comes first
    allowed = SAID[command](play.world, thing)
    note(f"{thing.name}: override {command.__name__} {'' if allowed else '(to be refused)'}")
    refused: CannotOverride | None = None
    try:
        command(play.stage.runtime, str(play.stage.ids[thing.name]), BY_HAND)
    except CannotOverride as error:
        refused = error
        play.stage.settle()  # as the model may have
    assert allowed == (refused is None), refused
    play.did[command.__name__] += allowed
    play.meet_new()
    if command is validate_workstream:
        play.end_step()  # a gate that it leaves nothing to judge is lost at once, even if a node starts it yet


def move_phase(play: Play, chances: Random) -> None:
    """A phase is frozen or thawed; what is so already is refused. As `override`, only between steps."""
    if play.firings or not play.world.phases:
        return
    phase = chances.choice(play.world.phases)
    act = freeze if (phase.state == "open") == (chances.random() < 0.8) else thaw
    allowed = phase.state != TO[act]
    note(f"{phase.name}: {act.__name__} {'' if allowed else '(to be refused)'}")
    with nullcontext() if allowed else pytest.raises(CannotMove):
        act(play.stage.runtime, phase.name, BY_HAND, project=play.stage.project)
    phase.state = TO[act]
    play.did[act.__name__] += allowed


def move_all(play: Play, act: Callable[..., Any]) -> None:
    """Every phase is frozen, or thawed."""
    for phase in play.world.phases:
        if phase.state != TO[act]:
            act(play.stage.runtime, phase.name, BY_HAND, project=play.stage.project)
            phase.state = TO[act]
            play.did[act.__name__] += 1


def _things(world: World, command: Callable[..., Done]) -> list[Any]:
    if command is rerun_gate:
        return world.gates
    return world.workstreams if command in OF_WORKSTREAMS else world.tasks


def _likely(world: World, command: Callable[..., Done]) -> list[Any]:
    """Those that the command is for; left to chance, most would be refused."""
    found = [thing for thing in _things(world, command) if thing.state in LIKELY.get(command, ())]
    if command is rerun_gate:
        found = [gate for gate in found if not gate.replaced and not world.over(gate.home)]
    if command is retry_workstream:
        found = [each for each in found if not each.left_out and not world.run.ended]
    return found


def _rehearse(play: Play, command: Callable[..., Done], thing: Thing) -> None:
    """A dry run first: it must change nothing, or what follows is found out by all that is compared."""
    try:
        command(play.stage.runtime, str(play.stage.ids[thing.name]), replace(BY_HAND, dry_run=True))
    except CannotOverride:
        return


def _may_end(task: Task) -> bool:
    """At work, or with nothing to wait for before it is tried again."""
    waits = any(each.state != "completed" for each in task.after) or any(each.state != "PASSED" for each in task.before)
    return task.state in ("running", "validating") or (task.begun and not task.ended and not waits)


def _complete(world: World, task: Task) -> bool:
    if not _may_end(task):
        return False
    task.state = "completed"
    _unjudge(world, task)
    return True


def _fail(world: World, task: Task) -> bool:
    if not _may_end(task):
        return False
    task.state = "failed"
    return True


def _unblock(world: World, task: Task) -> bool:
    waits = [each for each in task.after if each.state != "completed"]
    waits_for_gates = [each for each in task.before if each.state != "PASSED"]
    if task.state != "blocked" and not (task.state == "pending" and (waits or waits_for_gates)):
        return False
    task.after = [each for each in task.after if each not in waits]
    task.before = [each for each in task.before if each not in waits_for_gates]
    task.state = "pending"
    return True


def _skip(world: World, task: Task) -> bool:
    if task.state in SPENT:
        again = anew(world, task, retries=0)
        return again is not None and _skip(world, again)
    if task.ended:
        return False
    for other in world.tasks:
        other.after = [each for each in other.after if each is not task]
    _unjudge(world, task)
    task.state, task.left_out = "cancelled", True
    task.home.tasks.remove(task)
    return True


def _reset(world: World, task: Task) -> bool:
    return anew(world, task, retries=task.retries) is not None


def _rerun(world: World, gate: Gate) -> bool:
    if gate.state != "FAILED" or gate.replaced or world.over(gate.home):
        return False
    return rerun(world, gate)


def _fail_workstream(world: World, workstream: Workstream) -> bool:
    if workstream.ended:
        return False
    workstream.state = "failed"
    return True


def _validate_workstream(world: World, workstream: Workstream) -> bool:
    if workstream.state not in ("ready", "executing", "paused"):
        return False
    if not all(task.ended for task in world.tasks if task.home is workstream):
        return False
    workstream.state = "validating"
    return True


SAID: dict[Callable[..., Done], Callable[[World, Any], bool]] = {
    complete_task: _complete,
    fail_task: _fail,
    skip_step: _skip,
    reset_task: _reset,
    unblock_task: _unblock,
    fail_workstream: _fail_workstream,
    validate_workstream: _validate_workstream,
    rerun_gate: _rerun,
    retry_workstream: retry,
}


LIKELY: dict[Callable[..., Done], tuple[str, ...]] = {
    complete_task: ("running", "validating", "retrying"),
    fail_task: ("running", "validating", "retrying"),
    reset_task: ("failed", "cancelled", "running"),
    skip_step: ("pending", "blocked", "retrying", "failed"),
    unblock_task: ("blocked", "pending"),
    validate_workstream: ("paused",),
    fail_workstream: ("executing",),
    rerun_gate: ("FAILED",),
    retry_workstream: SPENT,
}


def _unjudge(world: World, task: Task) -> None:
    """No gate that has not passed judges it any more; nobody waits for one that judged nothing else."""
    gone = [gate for gate in task.gates if gate.state != "PASSED"]
    task.gates = [gate for gate in task.gates if gate.state == "PASSED"]
    for gate in gone:
        idle = not any(gate in each.gates for each in world.tasks)
        if gate.moment == "task" and gate.state in ("PENDING", "BLOCKED") and idle:
            for other in world.tasks:
                other.before = [each for each in other.before if each is not gate]
            for behind in world.gates:
                behind.after = [each for each in behind.after if each is not gate]


def override_blindly(stage: Stage, tasks: list[str], chances: Random) -> bool:
    """Override any task in any way, whatever happens to it meanwhile; whether it was done."""
    command = chances.choice([complete_task, fail_task, skip_step, reset_task, unblock_task])
    try:
        done = command(stage.runtime, str(stage.ids[chances.choice(tasks)]), BY_HAND)
    except CannotOverride:
        return False
    stage.ids |= done.made
    tasks += [name for name in done.made if name.partition("~")[0] in tasks]
    return True
