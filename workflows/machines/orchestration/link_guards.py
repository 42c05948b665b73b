"""Guards on an instance's links and on the counts in its row.

Roles of links: `depends_on` (instances of its own type), `blocked_by_gates` (gates before it), `gates` (gates after its
execution) and `patches`. Guards of workstreams and runs read counts of their tasks and workstreams, never each one,
because a workstream may have ten thousand tasks.
"""

from interlock.workflows.definition import Fact, Guard
from interlock.workflows.guard_context import Case

LINKED: frozenset[Fact] = frozenset({"linked"})
ROW: frozenset[Fact] = frozenset({"row"})
APPLY_RETRIES = 3  # PATCH-3


def _all(case: Case, role: str, *states: str) -> bool:
    return all(linked.state in states for linked in case.linked.get(role, ()))


def _every(guard: str, role: str, words: str, *states: str) -> Guard:
    """The guard that every instance linked as `role`, which `words` says, is in one of these states."""
    return Guard(guard, lambda case: _all(case, role, *states), f"{words} must be {' or '.join(states)}", needs=LINKED)


def _dependencies_hold(case: Case) -> bool:
    return _all(case, "depends_on", "completed") and _all(case, "blocked_by_gates", "PASSED")


def _gate_failed(case: Case) -> bool:
    gates = (*case.linked.get("blocked_by_gates", ()), *case.linked.get("gates", ()))
    return any(gate.state in ("FAILED", "BLOCKED") for gate in gates)


dependencies_completed = Guard(
    "dependencies_completed",
    _dependencies_hold,
    "everything it depends on must be completed, and every gate before it PASSED",
    needs=LINKED,
)

dependency_missing = Guard(
    "dependency_missing",
    lambda case: not _dependencies_hold(case),
    "everything it depends on is completed, and every gate before it PASSED: nothing blocks it",
    needs=LINKED,
)

gate_failed = Guard(
    "gate_failed",
    _gate_failed,
    "none of its gates has failed: nothing blocks it",
    needs=LINKED,
)

gates_passed = _every("gates_passed", "gates", "every one of its gates", "PASSED")
patches_verified = _every("patches_verified", "patches", "every one of its patches", "verified", "committed")
gate_dependencies_passed = _every("gate_dependencies_passed", "depends_on", "every gate it depends on", "PASSED")

gate_dependency_failed = Guard(
    "gate_dependency_failed",
    lambda case: any(gate.state in ("FAILED", "BLOCKED") for gate in case.linked.get("depends_on", ())),
    "no gate it depends on has failed: nothing blocks it",
    needs=LINKED,
)

retries_left = Guard(
    "retries_left",
    lambda case: case.row["retry_count"] < case.row["max_retries"],
    "its retries are used up",
    needs=ROW,
    bounds=True,
)

retries_used_up = Guard(
    "retries_used_up",
    lambda case: case.row["retry_count"] >= case.row["max_retries"],
    "it has retries left",
    needs=ROW,
)

apply_retries_left = Guard(
    "apply_retries_left",
    lambda case: case.row["apply_retries"] < APPLY_RETRIES,
    f"it was retried {APPLY_RETRIES} times: give it up (quarantine) or drop it",
    needs=ROW,
    bounds=True,
)

holds_no_task = Guard(
    "holds_no_task",
    lambda case: case.row["current_load"] == 0,
    "it holds a task: let it finish first (`interlock worker shutdown`)",
    needs=ROW,
)

tasks_all_created = Guard(
    "tasks_all_created",
    lambda case: (
        "task_count" not in case.context
        or case.row["total_tasks"] + case.row.get("left_out_tasks", 0) >= case.context["task_count"]
    ),
    "at least as many tasks must exist as the workstream's task_count says",
    needs=ROW,
)

task_started = Guard(
    "task_started",
    lambda case: case.row["started_tasks"] > 0,
    "at least one of its tasks must have started to run",
    needs=ROW,
)

tasks_all_completed = Guard(
    "tasks_all_completed",
    lambda case: case.row["completed_tasks"] == case.row["total_tasks"],
    "every one of its tasks must be completed",
    needs=ROW,
)
