"""What operators do to a run: said of the model in plain words, and done to the real one, or refused by both."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import note

from interlock.workers.overrides.rerun_gate import rerun_gate
from interlock.workers.overrides.reset_task import reset_task, skip_step
from interlock.workers.overrides.tasks import complete_task, fail_task, unblock_task
from interlock.workers.overrides.transaction import CannotOverride, Done, OverrideOrder
from interlock.workers.overrides.workstreams_and_patches import fail_workstream, validate_workstream
from tests.property.play import Play
from tests.property.run_model import World
from tests.property.run_things import Gate, Task, Thing, Workstream
from tests.running import Stage

BY_HAND = OverrideOrder("ann", "as drawn")
SPENT = ("failed", "cancelled")
Names = dict[str, str]
COMMANDS: list[Callable[..., Done]] = [
    *[complete_task, fail_task, skip_step, reset_task, unblock_task, rerun_gate] * 3,
    *[fail_workstream, validate_workstream],
]


def override(play: Play, chances: Random) -> None:
    """One override, by chance; only between steps, so that nothing else is on its way."""
    if play.firings:
        return
    command: Callable[..., Done] = chances.choice(COMMANDS)
    of_workstreams = command in (fail_workstream, validate_workstream)
    things: list[Any] = play.world.workstreams if of_workstreams else play.world.tasks
    if command is rerun_gate and not (things := play.world.gates):
        return
    likely = [thing for thing in things if thing.state in LIKELY.get(command, ())]
    if command is rerun_gate:
        likely = [gate for gate in likely if not gate.replaced and not play.world.over(gate.home)] or likely
    thing = chances.choice(likely if likely and chances.random() < 0.8 else things)
    if chances.random() < 0.3:
        _rehearse(play, command, thing)
    allowed = SAID[command](play.world, thing)
    note(f"{thing.name}: override {command.__name__} {'' if allowed else '(to be refused)'}")
    refused: CannotOverride | None = None
    try:
        play.stage.ids |= command(play.stage.runtime, str(play.stage.ids[thing.name]), BY_HAND).made
    except CannotOverride as error:
        refused = error
    assert allowed == (refused is None), refused
    play.meet_reruns()


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
        again = _anew(world, task, retries=0)
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
    return _anew(world, task, retries=task.retries) is not None


def _rerun(world: World, gate: Gate) -> bool:
    if gate.state != "FAILED" or gate.replaced or world.over(gate.home):
        return False
    olds, gates = _lost(world, [], [gate], misjudged=True)
    _replace(world, _completable(olds), gates, {})
    return True


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
}


LIKELY: dict[Callable[..., Done], tuple[str, ...]] = {  # left to chance, most would be refused
    complete_task: ("running", "validating", "retrying"),
    fail_task: ("running", "validating", "retrying"),
    reset_task: ("failed", "cancelled", "running"),
    unblock_task: ("blocked", "pending"),
    validate_workstream: ("paused",),
    rerun_gate: ("FAILED",),
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


def _anew(world: World, first: Task, *, retries: int) -> Task | None:
    """A task and all that was given up because of it, made anew; None: it cannot be."""
    if first.left_out or first.state == "completed" or world.over(first.home):
        return None
    olds, gates = _lost(world, [first], [])
    if first not in (olds := _completable(olds)):
        return None
    new = _replace(world, olds, gates, {first: retries})
    if not first.ended:
        first.state = "cancelled"
    return new[first]


def _completable(olds: list[Task]) -> list[Task]:
    """Without those that also wait for a task that will never complete."""
    while hopeless := [
        each for each in olds if any(other.state in SPENT and other not in olds for other in each.after)
    ]:
        olds = [each for each in olds if each not in hopeless]
    return olds


def _replace(world: World, olds: list[Task], gates: list[Gate], retries: dict[Task, int]) -> dict[Task, Task]:
    """New tasks in the place of these, once the gates that failed are run again."""
    for gate in gates:
        if gate.state == "FAILED":
            world.run_again(gate, reruns=0)
    new = {old: _again(world, old, retries.get(old, 0)) for old in olds}
    for old in olds:
        new[old].after = list(old.after)
        new[old].before, new[old].gates = list(old.before), list(old.gates)
        old.gates, old.left_out = [], True
        old.home.tasks.remove(old)
        old.home.tasks.append(new[old])
    for task in world.tasks:
        task.after = [new.get(each, each) for each in task.after]
    return new


def _lost(
    world: World, olds: list[Task], gates: list[Gate], *, misjudged: bool = False
) -> tuple[list[Task], list[Gate]]:
    """These, and what was given up because of them; `misjudged`: also what failed because of these gates."""
    before = -1
    while before != (before := len(olds) + len(gates)):
        for gate in world.gates:
            named = any(gate in (*task.gates, *task.before) for task in olds) or any(g in gate.after for g in gates)
            if named and gate not in gates and world.never(gate) and not world.over(gate.home):
                gates.append(gate)
        for task in world.tasks:
            waits = any(old in task.after for old in olds) or any(gate in task.before for gate in gates)
            gone = task.state == "cancelled" and task.given_up and not task.left_out
            failed = task.state == "failed" and task.misjudged and not task.left_out
            failed = misjudged and failed and any(gate in task.gates for gate in gates)
            if ((waits and gone) or failed) and task not in olds and not task.home.ended:
                olds.append(task)
    return olds, gates


def _again(world: World, old: Task, retries: int) -> Task:
    base = old.name.partition("~")[0]
    taken = [int(each.name.partition("~")[2] or 1) for each in world.tasks if each.name.partition("~")[0] == base]
    new = Task(f"{base}~{max(taken) + 1}", home=old.home, critical=old.critical, max_retries=old.max_retries)
    new.retries = retries
    world.tasks.append(new)
    return new


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
