"""Patches that would wait for one another in a worktree are refused where a plan is read (PATCH-17)."""

import pytest

from interlock.workflows.plan.problems import PlanInvalid
from interlock.workflows.plan.read import read_plan

HEAD = "name: p\nrepository: {path: .}\nworkstreams:\n  - id: w\n    tasks:\n"
ONE, TWO = "{id: one, type: UNIT, command: [x]}", "{id: two, type: UNIT, command: [x]}"


def plan(*tasks: str, gates: str = f"{ONE}, {TWO}", more: str = "") -> str:
    return HEAD + "".join(f"      - {{{task}}}\n" for task in tasks) + f"    gates: [{gates}]\n{more}"


@pytest.mark.parametrize(
    ("text", "line", "gate", "other"),
    [
        (plan("id: a, patch: a.diff, gates: [one]", "id: b, patch: b.diff, gates: [one]"), 6, "w/one", "w/b"),
        (  # whoever is first: if it is a, they end; if it is b, they do not
            plan(
                "id: a, patch: a.diff, gates: [one]",
                "id: b, patch: b.diff, gates: [two]",
                gates=f"{ONE}, {TWO[:-1]}, depends_on: [one]}}",
            ),
            7,
            "w/two",
            "w/a",
        ),
        (  # the same, though its gate waits for a task that waits for the patch
            plan(
                "id: a, patch: a.diff, gates: [one]",
                "id: b, patch: b.diff, gates: [two]",
                "id: c, shell: x, depends_on: [b], gates: [one]",
            ),
            6,
            "w/one",
            "w/b",
        ),
    ],
)
def test_a_patch_that_waits_for_one_behind_it_is_refused(text: str, line: int, gate: str, other: str) -> None:
    with pytest.raises(PlanInvalid) as refused:
        read_plan(text)
    (problem,) = refused.value.problems
    assert problem.line == line
    assert problem.message == (
        f'the patch waits for the gate "{gate}", which waits for the patch of "{other}"; only one at a time is in the '
        "workstream's worktree"
    )
    assert "gates of its own" in problem.hint


@pytest.mark.parametrize(
    "text",
    [
        plan("id: a, patch: a.diff, gates: [one]", "id: b, patch: b.diff, gates: [two]"),
        plan("id: a, patch: a.diff, gates: [one]", "id: b, shell: x, gates: [one]"),
        plan("id: a, patch: a.diff", "id: b, patch: b.diff"),
        plan(  # the first has landed before the second begins
            "id: a, patch: a.diff, gates: [one]",
            "id: between, shell: x, depends_on: [a]",
            "id: b, patch: b.diff, gates: [two], depends_on: [between]",
            gates=f"{ONE}, {TWO[:-1]}, depends_on: [one]}}",
        ),
        plan(  # they are in worktrees of their own
            "id: a, patch: a.diff, gates: [one]",
            more="  - {id: v, tasks: [{id: b, patch: b.diff, depends_on: [w/a]}]}\n",
        ),
    ],
)
def test_patches_that_only_wait_in_turn_are_taken(text: str) -> None:
    assert read_plan(text).name == "p"
