"""`scheduler`: the time per task to submit, schedule and apply, in a run of a thousand tasks and of ten thousand."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bench.carrying import Carrier, Spent
from bench.effort import Effort
from bench.finding import Bar, Finding
from bench.progress import Rounds
from bench.stage import Stage

GROWTH = 10
ROUNDS = 3  # at most: each takes a minute
CHAINED = 100  # tasks of a chain that are carried out: each takes as long, whatever the length of the chain
Task = dict[str, Any]
Carried = list[tuple[Spent, Spent]]


def measure(stage: Stage, effort: Effort, rounds: Rounds) -> list[Finding]:
    """A wide run (one task, then all, then one) and a deep one (a chain), small and large in turn."""
    carrier, small = Carrier(stage, stage.side("scheduler")), effort.run_tasks
    large = small * GROWTH
    chained = min(CHAINED, small)
    carrier.carry_out(wide(large))  # warm-up, because the tables are empty only the first time
    wides: Carried = []
    deeps: Carried = []
    for _ in replace(rounds, number=min(rounds.number, ROUNDS)):
        carrier.analyze()
        wides.append((carrier.carry_out(wide(large)), carrier.carry_out(wide(small))))
        deeps.append((carrier.carry_out(deep(large), only=chained), carrier.carry_out(deep(small), only=chained)))
    carrier.close()
    sizes = f"{large:,} tasks : {small:,}"
    return [
        _finding("wide", f"a task of a wide run, {sizes}", wides, lambda spent, size: spent.per_task(size), small),
        _finding("wide.pass", "of it, the scheduler's passes", wides, lambda spent, _: spent.scheduling(), small),
        _finding(
            "deep",
            f"a task of a chain, {sizes}",
            deeps,
            lambda spent, size: spent.per_task(size),
            small,
            note=f"of each chain the first {chained:,} tasks are carried out: claimed and reported one by one",
        ),
    ]


def wide(tasks: int) -> list[Task]:
    """One task, then all others but one, then that one."""
    middle = [{"id": f"t{n}", "shell": "x", "depends_on": ["w/root"]} for n in range(tasks - 2)]
    sink = {"id": "sink", "shell": "x", "depends_on": [f"w/{each['id']}" for each in middle]}
    return [{"id": "root", "shell": "x"}, *middle, sink]


def deep(tasks: int) -> list[Task]:
    """A chain: each task depends on the one before it."""
    return [{"id": f"t{n}", "shell": "x", "depends_on": [f"w/t{n - 1}"] if n else []} for n in range(tasks)]


def _finding(
    name: str, compared: str, carried: Carried, cost: Callable[[Spent, int], float], small: int, *, note: str = ""
) -> Finding:
    large = tuple(cost(each, small * GROWTH) for each, _ in carried)
    little = tuple(cost(each, small) for _, each in carried)
    bar = None if "." in name else Bar("≤", 1.2)
    return Finding(f"scheduler.{name}", compared, "ms", large, little, bar=bar, note=note)
