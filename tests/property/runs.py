"""Random runs: what plans can say, as sketches for the stage and as worlds for the model."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from hypothesis import strategies as st

from interlock.workflows.plan.gate_timing import moments
from interlock.workflows.plan.names import home_of, outline
from interlock.workflows.plan.ordering import Waits
from interlock.workflows.plan.plan import Plan
from tests.property.players import Fates
from tests.property.run_model import World
from tests.property.run_things import Gate, Phase, Task, Workstream

MOST = st.sampled_from([1, 2, 3, 4] + [5] * 28)  # shrinks to the left
PHASES = ("design", "release")
Sketches = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Run:
    """A run to be. `skipped` are left out before it starts."""

    workstreams: Sketches
    tasks: Sketches
    gates: Sketches
    skipped: tuple[str, ...]
    phases: tuple[str, ...] = ()
    approved: tuple[str, ...] = ()  # those of the phases that have approvers

    def world(self) -> World:
        """The model of it."""
        phases = {name: Phase(name, approvers=name in self.approved) for name in self.phases}
        homes = {
            name: Workstream(name, critical=each["critical"], phase=phases.get(each.get("phase_id", "")))
            for name, each in self.workstreams.items()
        }
        gates = {
            name: Gate(name, home=homes[each["workstream"]], moment=each["moment"], reruns=each["reruns_left"])
            for name, each in self.gates.items()
        }
        tasks: dict[str, Task] = {}
        for name, each in self.tasks.items():
            home = homes[each["workstream"]]
            tool = each.get("tool", "")
            tasks[name] = Task(name, home=home, critical=each["critical"], max_retries=each["max_retries"], tool=tool)
            home.tasks.append(tasks[name])
        for name, each in self.workstreams.items():
            homes[name].after = [homes[other] for other in each["depends_on"]]
            homes[name].final = [gates[other] for other in each["gates"]]
        for name, each in self.gates.items():
            gates[name].after = [gates[other] for other in each["depends_on"]]
        for name, each in self.tasks.items():
            tasks[name].after = [tasks[other] for other in each["depends_on"]]
            tasks[name].gates = [gates[other] for other in each["gates"]]
            tasks[name].born_with = list(tasks[name].gates)
            tasks[name].before = [gates[other] for other in each["blocked_by_gates"]]
        return World(
            workstreams=[*homes.values()], tasks=[*tasks.values()], gates=[*gates.values()], phases=[*phases.values()]
        )


def with_tools(run: Run, tool: str, chances: Random) -> Run:
    """The same run; some of its tasks call a tool."""
    tasks = {
        name: each | ({"tool": tool, "kind": "command"} if chances.random() < 0.4 else {})
        for name, each in run.tasks.items()
    }
    return replace(run, tasks=tasks)


def with_phases(run: Run, chances: Random) -> Run:
    """The same run; each workstream is in one of two phases, which may have approvers, or in none."""
    homes = {
        name: each | {"phase_id": phase} if (phase := chances.choice([*PHASES, ""])) else each
        for name, each in run.workstreams.items()
    }
    return replace(run, workstreams=homes, phases=PHASES, approved=PHASES[: chances.choice([0, 2])])


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """Runs of any plan without circles: up to five workstreams of up to five tasks, with gates at every moment.

    Hypothesis says how large, chance the rest: left to itself, Hypothesis draws plans in which little can happen.
    """
    chances = Random(draw(st.integers(0, 2**32 - 1)))
    sizes = [chances.randint(1, draw(MOST)) for _ in range(chances.randint(1, draw(MOST)))]
    while next(Waits(outline(plan := _plan(sizes, chances))).cycles(), None):
        pass
    return _sketched(plan)


def many_tasks(each: int) -> tuple[Run, Fates]:
    """A run of four workstreams with `each` tasks, and who fails in it, for good or not."""
    chances = Random(2026)
    workstreams: Sketches = {
        f"w{w}": {"depends_on": ["w0"] if w == 3 else [], "critical": False, "gates": []} for w in range(4)
    }
    tasks: Sketches = {}
    for w in range(4):
        for _ in range(each):
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
    for name in [name for name in tasks if name.startswith("w1/") and name not in awaited][:8]:
        tasks[name]["gates"] = ["w1/task"]
    gates: Sketches = {
        f"w1/{moment}": {"workstream": "w1", "moment": moment, "reruns_left": 1, "depends_on": []}
        for moment in ("start", "task", "final")
    }
    workstreams["w1"]["gates"] = ["w1/final"]
    failing = {name: 1 for name in tasks if chances.random() < 0.15}
    failing |= {f"w2/t{each * 5 // 2}": 2, "w1/start": 1, "w1/final": 1}
    return Run(workstreams, tasks, gates, ()), Fates(failing)


def _plan(sizes: Sequence[int], chances: Random) -> dict[str, Any]:
    workstreams: list[dict[str, Any]] = []
    tasks: list[str] = []
    gates: dict[str, list[str]] = {"start": [], "task": [], "final": []}
    for w, size in enumerate(sizes):
        mine: list[str] = []
        made: list[dict[str, Any]] = []
        for t in range(size):
            critical, retries = chances.random() < 0.3, chances.choice([0, 0, 1, 2])
            made.append({"id": f"t{t}", "shell": "x", "retries": retries, "critical": critical, "gates": []})
            made[-1]["depends_on"] = _some(chances, mine, 2) + _some(chances, tasks, 1)
            mine.append(f"w{w}/t{t}")
        tasks += mine
        checks = [_gate(chances, f"w{w}", f"g{g}", made, gates) for g in range(chances.randint(0, 3))]
        after = _some(chances, [each["id"] for each in workstreams], 2)
        workstreams.append({"id": f"w{w}", "tasks": made, "gates": checks, "depends_on": after})
        workstreams[-1] |= {"critical": chances.random() < 0.2, "skip": chances.random() < 0.08}
    if chances.random() < 0.3:
        _cross(chances, workstreams, tasks, [name for names in gates.values() for name in names])
    return {"name": "random", "workstreams": workstreams}


def _gate(
    chances: Random, workstream: str, name: str, tasks: list[dict[str, Any]], gates: dict[str, list[str]]
) -> dict[str, Any]:
    """A gate before tasks, after tasks, or after all; it depends on such as may run before it."""
    moment = chances.choice(["task", "start", "task", "final"])
    earlier = gates["start"] + (gates["task"] if moment != "start" else []) + (gates["final"] * (moment == "final"))
    after, reruns = _some(chances, earlier, 2), chances.randint(0, 1)
    made = {"id": name, "type": "UNIT", "shell": "x", "reruns": reruns, "depends_on": after, "blocks": []}
    chosen = [each for each in tasks if chances.random() < 0.6]
    if moment == "start":
        made["blocks"] = [f"{workstream}/{each['id']}" for each in chosen]
    if moment == "task":
        for each in chosen:
            each["gates"].append(f"{workstream}/{name}")
    gates[moment].append(f"{workstream}/{name}")
    return made


def _cross(chances: Random, workstreams: list[dict[str, Any]], tasks: list[str], gates: list[str]) -> None:
    """Gates that stand before tasks of another workstream; gates and tasks that wait for any other one."""
    for each in workstreams:
        for gate in each["gates"]:
            if chances.random() < 0.2:
                _add(chances, gate["depends_on"], gates, but=f"{each['id']}/{gate['id']}")
            _add(chances, gate["blocks"], tasks)
        for task in each["tasks"]:
            if chances.random() < 0.1:
                _add(chances, task["depends_on"], tasks, but=f"{each['id']}/{task['id']}")
            _add(chances, task["gates"], [gate for gate in gates if home_of(gate) == each["id"]])


def _add(chances: Random, named: list[str], names: list[str], *, but: str = "") -> None:
    named += [name for name in _some(chances, names, 1) if name not in named and name != but]


def _some(chances: Random, names: list[str], most: int) -> list[str]:
    return chances.sample(names, chances.randint(0, min(most, len(names))))


def _sketched(raw: dict[str, Any]) -> Run:
    plan = Plan.model_validate(raw)
    when = moments(plan)
    before = {task: [name for name, gate in plan.gates().items() if task in gate.blocks] for task in plan.tasks()}
    return Run(
        workstreams={
            each.id: {
                "depends_on": list(each.depends_on),
                "critical": each.critical,
                "gates": list(when.closing.get(each.id, ())),
            }
            for each in plan.workstreams
        },
        tasks={
            name: {
                "workstream": home_of(name),
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
                "workstream": home_of(name),
                "moment": when.of[name],
                "reruns_left": gate.reruns,
                "depends_on": list(gate.depends_on),
            }
            for name, gate in plan.gates().items()
        },
        skipped=tuple(each.id for each in plan.workstreams if each.skip),
    )
