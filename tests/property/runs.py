"""Random runs: what plans can say, as sketches for the stage and as worlds for the model."""

from dataclasses import dataclass
from random import Random
from typing import Any

from hypothesis import strategies as st

from tests.property.players import Fates
from tests.property.run_model import Gate, Task, Workstream, World
from workflows.plan.moments import moments
from workflows.plan.outline import outline
from workflows.plan.plan import Plan
from workflows.plan.waits import Waits

Sketches = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Run:
    """A run to be. `skipped` are left out before it starts."""

    workstreams: Sketches
    tasks: Sketches
    gates: Sketches
    skipped: tuple[str, ...]

    def world(self) -> World:
        """The model of it."""
        homes = {name: Workstream(name, critical=each["critical"]) for name, each in self.workstreams.items()}
        gates = {
            name: Gate(name, home=homes[each["workstream"]], moment=each["moment"], reruns=each["reruns_left"])
            for name, each in self.gates.items()
        }
        tasks: dict[str, Task] = {}
        for name, each in self.tasks.items():
            home = homes[each["workstream"]]
            tasks[name] = Task(name, home=home, critical=each["critical"], max_retries=each["max_retries"])
            home.tasks.append(tasks[name])
        for name, each in self.workstreams.items():
            homes[name].after = [homes[other] for other in each["depends_on"]]
            homes[name].final = [gates[other] for other in each["gates"]]
        for name, each in self.gates.items():
            gates[name].after = [gates[other] for other in each["depends_on"]]
        for name, each in self.tasks.items():
            tasks[name].after = [tasks[other] for other in each["depends_on"]]
            tasks[name].gates = [gates[other] for other in each["gates"]]
            tasks[name].before = [gates[other] for other in each["blocked_by_gates"]]
        return World(workstreams=[*homes.values()], tasks=[*tasks.values()], gates=[*gates.values()])


def runs() -> st.SearchStrategy[Run]:
    """Runs of any plan without circles: up to five workstreams of up to five tasks, with gates at every moment."""
    return _plans().filter(lambda plan: next(Waits(outline(plan)).cycles(), None) is None).map(_sketched)


def many_tasks() -> tuple[Run, Fates]:
    """A run of two hundred tasks in four workstreams, and who fails in it, for good or not."""
    chances = Random(2026)
    workstreams: Sketches = {
        f"w{w}": {"depends_on": ["w0"] if w == 3 else [], "critical": False, "gates": []} for w in range(4)
    }
    tasks: Sketches = {}
    for w in range(4):
        for _ in range(50):
            near = [name for name in tasks if name.startswith(f"w{w}/")]
            after = chances.sample(near, min(len(near), chances.randint(0, 2)))
            after += chances.sample([*tasks], 1) if w != 1 and tasks and chances.random() < 0.05 else []
            tasks[f"w{w}/t{len(tasks)}"] = {
                "workstream": f"w{w}",
                "depends_on": sorted({*after}),
                "critical": False,
                "max_retries": 1,
                "gates": [],
                "blocked_by_gates": ["w1/start"] if w == 1 and len(near) % 7 == 0 else [],
            }
    awaited = {name for task in tasks.values() for name in task["depends_on"]}
    for name in [each for each in tasks if each.startswith("w1/") and each not in awaited][:8]:
        tasks[name]["gates"] = ["w1/task"]
    gates: Sketches = {
        f"w1/{moment}": {"workstream": "w1", "moment": moment, "reruns_left": 1, "depends_on": []}
        for moment in ("start", "task", "final")
    }
    workstreams["w1"]["gates"] = ["w1/final"]
    failing = {name: 1 for name in tasks if chances.random() < 0.15} | {"w2/t125": 2, "w1/start": 1, "w1/final": 1}
    return Run(workstreams, tasks, gates, ()), Fates(failing)


@st.composite
def _plans(draw: st.DrawFn) -> dict[str, Any]:
    workstreams: list[dict[str, Any]] = []
    tasks: list[str] = []
    gates: list[str] = []
    for w in range(draw(st.integers(1, 5))):
        mine: list[str] = []
        made: list[dict[str, Any]] = []
        for t in range(draw(st.integers(1, 5))):
            made.append({"id": f"t{t}", "shell": "x", "retries": draw(st.integers(0, 2)), "critical": _rarely(draw)})
            made[-1] |= {"depends_on": _some(draw, mine, 2) + _some(draw, tasks, 1), "gates": []}
            mine.append(f"w{w}/t{t}")
        tasks += mine
        checks: list[dict[str, Any]] = []
        for g in range(draw(st.integers(0, 3))):
            checks.append({"id": f"g{g}", "type": "UNIT", "shell": "x", "reruns": draw(st.integers(0, 1))})
            checks[-1] |= {"depends_on": _some(draw, gates, 2), "blocks": []}
            gates.append(f"w{w}/g{g}")
            match draw(st.sampled_from(["start", "task", "task", "final"])):
                case "start":
                    checks[-1]["blocks"] = _some(draw, mine, 2)
                case "task":
                    for each in made:
                        each["gates"] += [gates[-1]] if draw(st.booleans()) else []
        workstreams.append({"id": f"w{w}", "tasks": made, "gates": checks, "critical": _rarely(draw)})
        workstreams[-1]["depends_on"] = _some(draw, [each["id"] for each in workstreams[:-1]], 2)
        workstreams[-1]["skip"] = draw(st.integers(0, 9)) == 9
    _cross(draw, workstreams, tasks, gates)
    return {"name": "random", "workstreams": workstreams}


def _cross(draw: st.DrawFn, workstreams: list[dict[str, Any]], tasks: list[str], gates: list[str]) -> None:
    """Now and then a gate stands before, or judges, a task of another workstream."""
    for each in workstreams:
        for gate in each["gates"]:
            gate["blocks"] += [name for name in _some(draw, tasks, 1) if _rarely(draw) and name not in gate["blocks"]]
        for task in each["tasks"]:
            task["gates"] += [name for name in _some(draw, gates, 1) if _rarely(draw) and name not in task["gates"]]


def _some(draw: st.DrawFn, names: list[str], most: int) -> list[str]:
    return draw(st.lists(st.sampled_from(names), unique=True, max_size=most)) if names else []


def _rarely(draw: st.DrawFn) -> bool:
    return draw(st.integers(0, 4)) == 4


def _sketched(raw: dict[str, Any]) -> Run:
    plan = Plan.model_validate(raw)
    when = moments(plan)
    before = {task: [name for name, gate in plan.gates().items() if task in gate.blocks] for task in plan.tasks()}
    return Run(
        workstreams={
            each.id: {
                "depends_on": list(each.depends_on),
                "critical": each.critical,
                "gates": [name for name, moment in when.of.items() if moment == "final" and _home(name) == each.id],
            }
            for each in plan.workstreams
        },
        tasks={
            name: {
                "workstream": _home(name),
                "depends_on": list(task.depends_on),
                "critical": task.critical,
                "max_retries": task.retries,
                "gates": list(when.after.get(name, ())),
                "blocked_by_gates": before[name],
            }
            for name, task in plan.tasks().items()
        },
        gates={
            name: {
                "workstream": _home(name),
                "moment": when.of[name],
                "reruns_left": gate.reruns,
                "depends_on": list(gate.depends_on),
            }
            for name, gate in plan.gates().items()
        },
        skipped=tuple(each.id for each in plan.workstreams if each.skip),
    )


def _home(name: str) -> str:
    return name.partition("/")[0]
