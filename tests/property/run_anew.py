"""What is made anew, said of the model in plain words: tasks, gates, and workstreams that are done again."""

from collections.abc import Iterable
from typing import TypeVar

from tests.property.run_model import World
from tests.property.run_things import Gate, Task, Thing, Workstream

T = TypeVar("T")

SPENT = ("failed", "cancelled")


def anew(world: World, first: Task, *, retries: int) -> Task | None:
    """A task and all that was given up because of it, made anew (RECOVER-10); None: it cannot be."""
    if first.left_out or first.state == "completed" or world.run.ended or not first.home.takes_tasks:
        return None
    olds, gates = _lost(world, [first], [])
    if first not in (olds := _completable(olds)) or any(world.over(gate.home) for gate in _passed(olds)):
        return None
    new = _replace(world, olds, gates, {first: retries})
    if not first.ended:
        first.state = "cancelled"
    return new[first]


def rerun(world: World, gate: Gate) -> bool:
    """A gate that failed is run again, with what was given up or failed because of it; False: it cannot be."""
    olds, gates = _lost(world, [], [gate], misjudged=True)
    olds = _completable(olds)
    if any(world.over(each.home) for each in _passed(olds)):
        return False
    _replace(world, olds, gates, {})
    return True


def retry(world: World, first: Workstream) -> bool:
    """A workstream is done again, with what was given up only because of it (WORKSTREAM-15); False: it cannot be."""
    if world.run.ended or first.left_out or first.state not in SPENT or any(map(_never, first.after)):
        return False
    homes = _given_up(world, first)
    tasks = [task for task in world.tasks if task.home in homes and not task.left_out]
    gates = [gate for gate in world.gates if gate.home in homes and not gate.replaced]
    outside = [gate for gate in _passed(tasks) if gate.home not in homes]
    lost, lost_gates = _lost(world, tasks, gates, misjudged=True)
    lost, lost_gates = _less(lost, tasks), _less(lost_gates, gates)
    lost = _completable(lost, beside=tasks)
    if any(world.over(gate.home) for gate in (*outside, *_less(_passed(lost), gates))):
        return False
    _do_again(world, homes, tasks, gates, _judge_again(world, outside))
    _replace(world, lost, lost_gates, {})
    return True


def _never(home: Workstream) -> bool:
    """Whether nothing that depends on it can ever begin."""
    return home.state in (*SPENT, "skipped")


def _given_up(world: World, first: Workstream) -> list[Workstream]:
    """It, and those that nobody gave up but for it."""
    homes, before = [first], 0
    while before != (before := len(homes)):
        homes += [
            each
            for each in world.workstreams
            if each.given_up and not each.left_out and each not in homes and any(old in each.after for old in homes)
        ]
    while alone := [
        each
        for each in homes
        if each is not first and any(_never(other) and other not in homes for other in each.after)
    ]:
        homes = _less(homes, alone)
    return homes


def _do_again(
    world: World, homes: list[Workstream], tasks: list[Task], gates: list[Gate], judges: dict[Gate, Gate]
) -> None:
    """New ones in the place of these; whatever waits for what did not succeed waits for them."""
    others: list[Thing] = [*_less(world.workstreams, homes), *_less(world.tasks, tasks), *_less(world.gates, gates)]
    home_of: dict[Workstream, Workstream] = {}
    for each in homes:
        each.left_out, home_of[each] = True, each.again(world.name_again(each))
        world.workstreams.append(home_of[each])
    gate_of, task_of = dict(judges), dict[Task, Task]()
    for gate in gates:
        before = _places(gate, homes)  # its reruns are those that the plan gave the first of them
        again = gate.again(world.name_again(gate), home_of[gate.home], max(each.reruns for each in before))
        gate_of |= dict.fromkeys(before, again)
        gate.replaced = True
        world.gates.append(again)
    for task in tasks:
        task.left_out, task_of[task] = True, task.again(world.name_again(task), home_of[task.home])
        world.tasks.append(task_of[task])
        task_of[task].home.tasks.append(task_of[task])
    for home in homes:
        home_of[home].after, home_of[home].final = _named(home.after, home_of), _named(home.final, gate_of)
    for gate in gates:
        gate_of[gate].after = _named(gate.after, gate_of)
    for task, new in task_of.items():
        new.after, new.before = _named(task.after, task_of), _named(task.before, gate_of)
        waived = [gate for gate in task.born_with if gate in gate_of]
        new.gates = _named([*task.gates, *waived], gate_of)
        new.born_with = list(new.gates)
    failed_homes = {old: new for old, new in home_of.items() if old.state != "completed"}
    failed_tasks = {old: new for old, new in task_of.items() if old.state != "completed"}
    failed_gates = {old: gate_of[old] for old in gates if old.state != "PASSED"}
    for other in others:
        match other:
            case Workstream():
                other.after = _named(other.after, failed_homes)
            case Gate():
                other.after = _named(other.after, failed_gates)
            case Task():
                other.after, other.before = _named(other.after, failed_tasks), _named(other.before, failed_gates)
                if other.state != "completed":  # no change goes past a gate that judged another one (GATE-7)
                    other.gates = _named(other.gates, {gate: gate_of[gate] for gate in gates})


def _places(gate: Gate, homes: list[Workstream]) -> list[Gate]:
    """A gate and all that it took the place of, in these workstreams."""
    found = [gate]
    while isinstance(before := found[-1].retry_of, Gate) and before.home in homes:
        found.append(before)
    return found


def _named(names: Iterable[T], places: dict[T, T]) -> list[T]:
    return [*dict.fromkeys(places.get(each, each) for each in names)]


def _less(things: Iterable[T], gone: Iterable[T]) -> list[T]:
    left = dict.fromkeys(gone)
    return [each for each in things if each not in left]


def _passed(olds: list[Task]) -> list[Gate]:
    """The gates that passed and judge these."""
    return [*dict.fromkeys(gate for old in olds for gate in old.gates if gate.state == "PASSED")]


def _judge_again(world: World, passed: list[Gate]) -> dict[Gate, Gate]:
    """New gates in the place of these, which passed, for all that is not completed; what relied on them stays."""
    new: dict[Gate, Gate] = {}
    for old in passed:
        new[old] = old.again(world.name_again(old), old.home, 0)
        old.replaced = True
        world.gates.append(new[old])
    for again in new.values():
        again.after = _named(again.after, new)
    for task in world.tasks:
        if task.state != "completed" and not task.left_out:
            task.gates = _named(task.gates, new)
    return new


def _completable(olds: list[Task], beside: Iterable[Task] = ()) -> list[Task]:
    """Without those that also wait for a task that will never complete, and is not made anew with them or `beside`."""
    while hopeless := [
        each for each in olds if any(other.state in SPENT for other in _less(each.after, [*olds, *beside]))
    ]:
        olds = _less(olds, hopeless)
    return olds


def _replace(world: World, olds: list[Task], gates: list[Gate], retries: dict[Task, int]) -> dict[Task, Task]:
    """New tasks in the place of these, once gates that failed, or passed for an old one, are run again."""
    judges = _judge_again(world, _passed(olds))
    for gate in gates:
        if gate.state == "FAILED":
            world.run_again(gate, reruns=0)
            world.gates[-1].after = _named(world.gates[-1].after, judges)
    new: dict[Task, Task] = {}
    for old in olds:
        new[old] = old.again(world.name_again(old), old.home)
        new[old].retries = retries.get(old, 0)
        world.tasks.append(new[old])
    for old in olds:
        new[old].after, new[old].before, new[old].gates = list(old.after), list(old.before), list(old.gates)
        new[old].born_with = list(old.gates)
        old.gates, old.left_out = [], True
        old.home.tasks.remove(old)
        old.home.tasks.append(new[old])
    for task in world.tasks:
        task.after = _named(task.after, new)
    return new


def _lost(
    world: World, olds: list[Task], gates: list[Gate], *, misjudged: bool = False
) -> tuple[list[Task], list[Gate]]:
    """These, and what was given up because of them; `misjudged`: also what failed because of these gates."""
    olds, gates, before = list(olds), list(gates), -1
    while before != (before := len(olds) + len(gates)):
        dead = {each for each in olds if each.state != "completed"}
        shut = {each for each in gates if each.state != "PASSED"}
        for gate in world.gates:
            named = any(gate in (*task.gates, *task.before) for task in olds) or not shut.isdisjoint(gate.after)
            if named and gate not in gates and world.never(gate) and not world.over(gate.home):
                gates.append(gate)
        for task in world.tasks:
            waits = not dead.isdisjoint(task.after) or not shut.isdisjoint(task.before)
            gone = task.state == "cancelled" and task.given_up and not task.left_out
            failed = task.state == "failed" and task.misjudged and not task.left_out
            failed = misjudged and failed and not shut.isdisjoint(task.gates)
            if ((waits and gone) or failed) and task not in olds and task.home.takes_tasks:
                olds.append(task)
    return olds, gates
