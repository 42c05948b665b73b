"""Check that no patch of a plan waits for ever for another one: only one at a time is in a worktree (PATCH-17)."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from interlock.workflows.plan.gate_timing import moments
from interlock.workflows.plan.plan import Plan
from interlock.workflows.plan.problems import UnlocatedProblem, quoted

HINT = "give each patch gates of its own, which may run the same command"


def check_patches(plan: Plan) -> Iterator[UnlocatedProblem]:
    """Yield every patch that would wait for a gate that waits for another patch of its workstream.

    A patch leaves the worktree when its gates have passed, and a gate runs when all patches that it judges are applied.

    Args:
        plan: settled; its names are correct.
    """
    after, told = moments(plan).after, set[frozenset[str]]()
    patches = {name for name, task in plan.tasks().items() if task.kind == "patch"}
    judged: dict[str, list[str]] = defaultdict(list)
    for name in (each for each in after if each in patches):
        for gate in after[name]:
            judged[gate].append(name)
    for w, workstream in enumerate(plan.workstreams):
        for t, task in enumerate(workstream.tasks):
            name = f"{workstream.id}/{task.id}"
            if name not in patches:
                continue
            for gate, other in _others(plan, name, after.get(name, ()), judged):
                if frozenset((name, other)) not in told and not _comes_after(plan, name, other):
                    told.add(frozenset((name, other)))
                    message = (
                        f"the patch waits for the gate {quoted(gate)}, which waits for the patch of {quoted(other)}; "
                        "only one at a time is in the workstream's worktree"
                    )
                    yield UnlocatedProblem(("workstreams", w, "tasks", t, "gates"), message, HINT)


def _others(
    plan: Plan, task: str, gates: Sequence[str], judged: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, str]]:
    """The gates that a patch's gates wait for, themselves included, with the other patches of its workstream there."""
    home, known, needed, found = task.partition("/")[0], plan.gates(), [*gates], set[str]()
    while needed:
        if (gate := needed.pop()) not in found:
            found.add(gate)
            needed += known[gate].depends_on
            for other in judged.get(gate, ()):
                if other != task and other.partition("/")[0] == home:
                    yield gate, other


def _comes_after(plan: Plan, task: str, other: str) -> bool:
    """Whether a task starts only when another one is completed."""
    known, needed, found = plan.tasks(), [task], set[str]()
    while needed:
        if (name := needed.pop()) == other:
            return True
        if name not in found:
            found.add(name)
            needed += known[name].depends_on
    return False
