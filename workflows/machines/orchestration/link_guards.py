"""Guards on an instance's links and on the counts in its row.

Roles of links: `depends_on` (instances of its own type), `blocked_by_gates` (gates before it), `gates` (gates after its
execution) and `patches`. Guards of workstreams and runs read counts of their tasks and workstreams, never each one,
because a workstream may have ten thousand tasks.
"""

from collections.abc import Callable, Mapping
from typing import Any

from interlock.workflows.definition import Fact, Guard
from interlock.workflows.guard_context import Case

LINKED: frozenset[Fact] = frozenset({"linked"})
ROW: frozenset[Fact] = frozenset({"row"})
Row = Mapping[str, Any]
APPLY_RETRIES = 3  # PATCH-3


def _all(case: Case, role: str, *states: str) -> bool:
    return all(linked.state in states for linked in case.linked.get(role, ()))


def _every(guard: str, role: str, words: str, *states: str) -> Guard:
    """The guard that every instance linked as `role`, which `words` says, is in one of these states."""
    description = f"{words} must be {' or '.join(states)}"
    return Guard(guard, lambda case: _all(case, role, *states), description, needs=LINKED, roles=(role,))


def on_row(guard: str, holds: Callable[[Row], bool], words: str, *, bounds: bool = False) -> Guard:
    """The guard that an instance's row is as `holds` asks; see `Guard`."""
    return Guard(guard, lambda case: holds(case.row), words, needs=ROW, bounds=bounds)


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
    roles=("depends_on", "blocked_by_gates"),
)

dependency_missing = Guard(
    "dependency_missing",
    lambda case: not _dependencies_hold(case),
    "everything it depends on is completed, and every gate before it PASSED: nothing blocks it",
    needs=LINKED,
    roles=("depends_on", "blocked_by_gates"),
)

gate_failed = Guard(
    "gate_failed",
    _gate_failed,
    "none of its gates has failed: nothing blocks it",
    needs=LINKED,
    roles=("blocked_by_gates", "gates"),
)

gates_passed = _every("gates_passed", "gates", "every one of its gates", "PASSED")
patches_verified = _every("patches_verified", "patches", "every one of its patches", "verified", "committed")
gate_dependencies_passed = _every("gate_dependencies_passed", "depends_on", "every gate it depends on", "PASSED")

gate_dependency_failed = Guard(
    "gate_dependency_failed",
    lambda case: any(gate.state in ("FAILED", "BLOCKED") for gate in case.linked.get("depends_on", ())),
    "no gate it depends on has failed: nothing blocks it",
    needs=LINKED,
    roles=("depends_on",),
)

retries_left = on_row(
    "retries_left", lambda row: row["retry_count"] < row["max_retries"], "its retries are used up", bounds=True
)

retries_used_up = on_row("retries_used_up", lambda row: row["retry_count"] >= row["max_retries"], "it has retries left")

apply_retries_left = on_row(
    "apply_retries_left",
    lambda row: row["apply_retries"] < APPLY_RETRIES,
    f"it was retried {APPLY_RETRIES} times: give it up (quarantine) or drop it",
    bounds=True,
)

holds_no_task = on_row(
    "holds_no_task",
    lambda row: row["current_load"] == 0,
    "it holds a task: let it finish first (`interlock worker shutdown`)",
)

holds_a_task = on_row(
    "holds_a_task",
    lambda row: row["current_load"] > 0,
    "it holds no task: a claim gives it one (`interlock worker claim`)",
)

phase_open = on_row(
    "phase_open",
    lambda row: not row["frozen"],
    "its phase is frozen: nothing of it lands until an operator thaws it (`interlock phase thaw`)",
)

landing_approved = on_row(
    "landing_approved",
    lambda row: (row["landing_approval"] or {"state": "approved"})["state"] == "approved",
    "its phase has approvers, none of whom has approved its landing",
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

task_started = on_row(
    "task_started", lambda row: row["started_tasks"] > 0, "at least one of its tasks must have started to run"
)

tasks_all_completed = on_row(
    "tasks_all_completed",
    lambda row: row["completed_tasks"] == row["total_tasks"],
    "every one of its tasks must be completed",
)
