"""Random plans, a printer that knows the line of everything it prints, and a plain reading of what waits for what."""

import json
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from interlock.workflows.input.names import is_name

Path = tuple[str | int, ...]
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8).map(
    lambda text: "x" if text.isspace() else text  # a filter would be prepared anew at every draw
)


COMMANDS = st.lists(TEXTS, min_size=1, max_size=3)
TERMS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(  # made once: making it takes longer than drawing
    {},
    optional={
        "retries": st.integers(0, 100),
        "timeout": st.integers(1, 86_400) | st.integers(1, 99).map("{}m".format),
        "critical": st.booleans(),
        "env": st.dictionaries(st.sampled_from("ABC"), TEXTS),
        "expected_exit_codes": st.lists(st.integers(0, 255), min_size=1, max_size=3),
        "capabilities": st.lists(TEXTS.filter(is_name), max_size=2),
        "backoff": st.fixed_dictionaries({}, optional={"base": st.floats(0, 100), "cap": st.just("5m")}),
    },
)


@dataclass
class Written:
    """JSON with one value a line, and for each path its line (from 1) and value."""

    text: str = ""
    lines: dict[Path, int] = field(default_factory=dict)
    values: dict[Path, Any] = field(default_factory=dict)


def written(value: Any) -> Written:
    """Print a value of dicts and lists."""
    printed = Written()
    _write(printed, value, ())
    return printed


def _write(printed: Written, value: Any, path: Path) -> None:
    printed.lines[path], printed.values[path] = printed.text.count("\n") + 1, str(value)
    if not isinstance(value, dict | list) or not value:
        printed.text += json.dumps(value)
        return
    items: list[tuple[str | int, Any]] = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    for number, (step, inner) in enumerate(items):
        begin = "{["[isinstance(value, list)] if number == 0 else ","
        printed.text += f"{begin}{' ' if number == 0 else chr(10)}"
        printed.text += f"{json.dumps(step)}: " if isinstance(value, dict) else ""
        _write(printed, inner, (*path, step))
    printed.text += "}]"[isinstance(value, list)]


@st.composite
def plans(draw: st.DrawFn) -> dict[str, Any]:
    """Sound plans of up to four workstreams of commands; dependencies lead to what is written before."""
    workstreams: list[dict[str, Any]] = []
    earlier: list[str] = []
    for w in range(draw(st.integers(1, 4))):
        tasks: list[dict[str, Any]] = []
        for t in range(draw(st.integers(1, 5))):
            near = _any_of(draw, [each["id"] for each in tasks])
            far = dict.fromkeys(_one_or_none(draw, earlier) + _one_or_none(draw, earlier))
            tasks.append({"id": f"t{w}-{t}", "command": draw(COMMANDS)})
            tasks[-1] |= draw(TERMS) | {"depends_on": [*near, *far]} | _inputs(draw, [*near, *earlier[-3:]])
        before = _any_of(draw, [each["id"] for each in workstreams])
        workstreams.append({"id": f"w{w}", "depends_on": before, "tasks": tasks})
        earlier += [f"w{w}/{each['id']}" for each in tasks]
    return {"name": "random", "defaults": draw(TERMS), "workstreams": workstreams}


def _inputs(draw: st.DrawFn, among: list[str]) -> dict[str, Any]:
    """Inputs from some of the tasks, whole results or keys of them."""
    chosen = _any_of(draw, among)
    keyed = [each if number % 2 else f"{each}:key/{number}" for number, each in enumerate(chosen)]
    return {"inputs": {f"IN_{number}": each for number, each in enumerate(keyed)}} if chosen else {}


def _any_of(draw: st.DrawFn, among: list[str]) -> list[str]:
    """Any of some names, in their order."""
    chosen = draw(st.integers(0, 2 ** len(among) - 1))
    return [each for number, each in enumerate(among) if chosen >> number & 1]


def _one_or_none(draw: st.DrawFn, among: list[str]) -> list[str]:
    chosen = draw(st.integers(0, len(among)))
    return among[chosen - 1 : chosen] if chosen else []


@st.composite
def tangles(draw: st.DrawFn) -> dict[str, Any]:
    """Plans of two workstreams with two tasks and two gates each, in which anything may wait for anything else.

    But gates judge tasks of their own workstream only, as anything else is refused.
    """
    owners, ids = ["a", "b"], ["1", "2"]
    own = {w: [f"{w}/{each}" for each in ids] for w in owners}
    full = [name for names in own.values() for name in names]

    def some(among: list[str], but: str = "") -> list[str]:
        return _one_or_none(draw, [each for each in among if each != but])

    def task(w: str, each: str) -> dict[str, Any]:
        inputs = {f"IN_{number}": f"{name}:key" for number, name in enumerate(some(full, f"{w}/{each}"))}
        needs = some(full, f"{w}/{each}")
        return {"id": each, "shell": "x", "depends_on": needs, "gates": some(own[w]), "inputs": inputs}

    def gate(w: str, each: str) -> dict[str, Any]:
        return {"id": each, "type": "LINT", "shell": "x", "depends_on": some(full, f"{w}/{each}"), "blocks": some(full)}

    return {
        "name": "tangle",
        "workstreams": [
            {
                "id": w,
                "depends_on": some(owners, w),
                "tasks": [task(w, each) for each in ids],
                "gates": [gate(w, each) for each in ids],
            }
            for w in owners
        ],
    }


def can_end(raw: dict[str, Any]) -> bool:
    """Play a plan in which everything succeeds at once, by docs/plans.md; whether all of it gets done."""
    workstreams = {each["id"]: each for each in raw["workstreams"]}
    tasks = {f"{w}/{each['id']}": (w, each) for w, its in workstreams.items() for each in its["tasks"]}
    gates = {f"{w}/{each['id']}": (w, each) for w, its in workstreams.items() for each in its["gates"]}
    begun: set[str] = set()
    done: set[str] = set()
    passed: set[str] = set()

    def ended(w: str) -> bool:
        mine = f"{w}/"
        return all(each in done for each in tasks if each.startswith(mine)) and all(
            each in passed for each in gates if each.startswith(mine)
        )

    def opened(w: str) -> bool:
        return all(ended(each) for each in workstreams[w]["depends_on"])

    early = {each for _, task in tasks.values() for each in task["gates"]}
    early |= {name for name, (_, gate) in gates.items() if gate["blocks"]}
    for _ in gates:  # each round adds those that a gate of the round before depends on
        early |= {each for name in early for each in gates[name][1]["depends_on"]}

    def may_run(name: str) -> bool:
        w, gate = gates[name]
        judged = {each for each, (_, task) in tasks.items() if name in task["gates"]}
        return (
            opened(w)
            and passed.issuperset(gate["depends_on"])
            and begun.issuperset(judged)
            and (name in early or all(each in done for each in tasks if each.startswith(f"{w}/")))
        )

    def may_begin(name: str) -> bool:
        w, task = tasks[name]
        blocking = {each for each, (_, gate) in gates.items() if name in gate["blocks"]}
        needed = {*task["depends_on"], *(each.partition(":")[0] for each in task["inputs"].values())}
        return opened(w) and done.issuperset(needed) and passed.issuperset(blocking)

    while True:
        before = len(begun) + len(done) + len(passed)
        begun |= {each for each in tasks if may_begin(each)}
        passed |= {each for each in gates if may_run(each)}
        done |= {each for each in begun if passed.issuperset(tasks[each][1]["gates"])}
        if len(begun) + len(done) + len(passed) == before:
            return len(done) == len(tasks) and len(passed) == len(gates)
