"""Check that no patch of a plan waits for ever for another one: only one at a time is in a worktree (PATCH-17)."""

from collections import Counter
from collections.abc import Iterator

from interlock.workflows.plan.gate_timing import moments, waits
from interlock.workflows.plan.names import home_of
from interlock.workflows.plan.ordering import Node
from interlock.workflows.plan.plan import Plan
from interlock.workflows.plan.problems import UnlocatedProblem, quoted

HINT = "give each patch gates of its own, which may run the same command"


def check_patches(plan: Plan) -> Iterator[UnlocatedProblem]:
    """Yield every patch that would wait for a gate that waits for another patch of its workstream.

    A patch leaves the worktree when its gates have passed, and a gate runs when all patches that it judges are applied.

    Args:
        plan: settled; its names are correct.
    """
    patches = {
        f"{workstream.id}/{task.id}": ("workstreams", w, "tasks", t, "gates")
        for w, workstream in enumerate(plan.workstreams)
        for t, task in enumerate(workstream.tasks)
        if task.kind == "patch"
    }
    if not patches or not (after := moments(plan).after):
        return
    names = [*patches]
    started = {name: 1 << 2 * number for number, name in enumerate(names)}
    marks = {Node("starts", name): mark for name, mark in started.items()}
    marks |= {Node("task", name): mark << 1 for name, mark in started.items()}  # it has ended
    reached, beside, told = waits(plan, after).reached(marks), Counter[str](), Counter[str]()
    for name, mark in started.items():
        beside[home_of(name)] |= mark
    for name, path in patches.items():
        ended_before = reached[Node("starts", name)] >> 1
        for gate in after.get(name, ()):
            others = reached[Node("gate", gate)] & beside[home_of(name)] & ~started[name] & ~ended_before & ~told[name]
            if others:
                other = names[(others & -others).bit_length() >> 1]
                told[other] |= started[name]  # the same of both, once
                message = (
                    f"the patch waits for the gate {quoted(gate)}, which waits for the patch of {quoted(other)}; "
                    "only one at a time is in the workstream's worktree"
                )
                yield UnlocatedProblem(path, message, HINT)
                break
