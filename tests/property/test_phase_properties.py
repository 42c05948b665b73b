"""What phases ask of plans and of changes, against the rules said again in plain words (docs/spec/phase.md)."""

import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from interlock.workers.git.policy import PatchPolicy, PhasePaths, check
from interlock.workflows.plan.problems import PlanInvalid
from interlock.workflows.plan.read import read_plan

TYPES = ("LINT", "UNIT", "SECURITY")
SEEDS = st.integers(0, 2**32 - 1)  # left to itself, Hypothesis draws plans and changes in which little can happen
MATCHES: dict[str, Callable[[str], bool]] = {
    "**": lambda path: True,
    "src/**": lambda path: path.startswith("src/"),
    "*.py": lambda path: path.endswith(".py"),
    "/top.py": lambda path: path == "top.py",
    "deep/": lambda path: "/deep/" in f"/{path}",
}
PATHS = ("top.py", "src/a.py", "src/b.txt", "src/deep/c.txt", "docs/top.py", "docs/deep/d.py")


@hypothesis_settings(max_examples=120)
@given(seed=SEEDS)
@pytest.mark.promise("O8")
def test_a_plan_is_refused_exactly_for_unknown_phases_and_missing_gates(seed: int) -> None:
    """PHASE-2, PHASE-4."""
    raw = plan_with_phases(Random(seed))
    try:
        read_plan(json.dumps(raw))
        told: list[str] = []
    except PlanInvalid as error:
        told = sorted(each.message for each in error.problems)
    assert told == sorted(lacking(raw))


def plan_with_phases(chances: Random) -> dict[str, Any]:
    """A plan with gates before its task, after it and after all, in phases that it declares, or not."""
    phases = {name: {"required_gates": chances.sample(TYPES, chances.choice([0, 0, 1, 2]))} for name in ("a", "b")}
    workstreams: list[dict[str, Any]] = []
    for name in "xyz"[: chances.randint(1, 3)]:
        gates: list[dict[str, Any]] = []
        judges: list[str] = []
        for number in range(chances.randint(0, 4)):
            gate: dict[str, Any] = {
                "id": f"g{number}",
                "type": chances.choice(TYPES),
                "shell": "x",
                "blocks": [],
                "depends_on": [],
            }
            moment = chances.choice(["before", "after", "end", "end"])
            gate["blocks"] = [f"{name}/t"] if moment == "before" else []
            judges += [gate["id"]] if moment == "after" else []
            gates.append(gate)
        early = [gate for gate in gates if gate["blocks"]]
        if early and (others := [each for each in gates if not each["blocks"] and each["id"] not in judges]):
            early[0]["depends_on"] = [others[0]["id"]] if chances.random() < 0.3 else []
        home: dict[str, Any] = {"id": name, "tasks": [{"id": "t", "shell": "x", "gates": judges}], "gates": gates}
        home |= {"phase_id": chances.choice(["a", "b", "default", "c"])} if chances.random() < 0.6 else {}
        workstreams.append(home | {"skip": chances.random() < 0.2})
    of_run = {"phase_id": chances.choice(["a", "b", "b", "c"])} if chances.random() < 0.5 else {}
    return {"name": "p", "phases": phases, "workstreams": workstreams, **of_run}


def lacking(raw: dict[str, Any]) -> list[str]:
    """What is to be told of it."""
    told = [f'no phase "{each["phase_id"]}"' for each in (raw, *raw["workstreams"]) if each.get("phase_id") == "c"]
    for home in raw["workstreams"]:
        early = {each["id"] for each in home["gates"] if each["blocks"]} | set(home["tasks"][0]["gates"])
        early |= {each for gate in home["gates"] if gate["id"] in early for each in gate["depends_on"]}
        last = {each["type"] for each in home["gates"] if each["id"] not in early}
        phase = home.get("phase_id", raw.get("phase_id", "default"))
        wanted = [] if home["skip"] else raw["phases"].get(phase, {"required_gates": []})["required_gates"]
        told += [
            f'phase "{phase}" requires a gate of type {each} that judges the whole workstream'
            for each in wanted
            if each not in last
        ]
    return told


@hypothesis_settings(max_examples=120)
@given(seed=SEEDS)
def test_a_change_is_in_scope_exactly_if_plan_and_phase_allow_every_path_and_neither_forbids_one(seed: int) -> None:
    """PHASE-3, also of both ends of a rename."""
    chances = Random(seed)
    ours, its = [("**",) if chances.random() < 0.3 else some(chances, 1) for _ in "ab"]
    not_ours, not_its = [() if chances.random() < 0.5 else some(chances, 0) for _ in "ab"]
    phase = PhasePaths(name="release", allowed_paths=its, forbidden_paths=not_its)
    paths = chances.sample(PATHS, chances.randint(1, 3))
    text = "".join(map(changed, paths[:2])) if len(paths) < 3 else renamed(*paths[:2]) + changed(paths[2])
    checked = check(text, PatchPolicy(allowed_paths=ours, forbidden_paths=not_ours, phase=phase))
    within = all(matches(path, ours) and matches(path, its) for path in paths)
    assert checked.scope == (within and not any(matches(path, (*not_ours, *not_its)) for path in paths))
    of_phase = [each for each in checked.reasons if each.rule == "phase"]
    assert all("phase release" in str(each) for each in of_phase)
    assert bool(of_phase) == any(
        matches(path, ours) and not matches(path, not_ours) and (not matches(path, its) or matches(path, not_its))
        for path in paths
    )


def some(chances: Random, least: int) -> tuple[str, ...]:
    return tuple(chances.sample([*MATCHES], chances.randint(least, 2)))


def matches(path: str, globs: tuple[str, ...]) -> bool:
    return any(MATCHES[each](path) for each in globs)


def changed(path: str) -> str:
    return f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-a\n+b\n"


def renamed(old: str, new: str) -> str:
    return f"diff --git a/{old} b/{new}\nsimilarity index 100%\nrename from {old}\nrename to {new}\n"
