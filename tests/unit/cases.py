"""Cases to decide: one in which every guard of a shipped machine holds, and ones that differ from it in a fact."""

from typing import Any
from uuid import UUID

from interlock.workflows.catalogue import catalogue
from interlock.workflows.decide import decide
from interlock.workflows.definition import Definition
from interlock.workflows.guard_context import Case, Linked
from interlock.workflows.outcomes import Applied, Rejected

GOOD_METADATA = {
    "exit_code": 0,
    "worker_id": "01890000-0000-7000-8000-000000000001",
    "task_id": "01890000-0000-7000-8000-000000000002",
    "capabilities": ["git", "python"],
    "reason": "because",
    "authorized_by": "ann",
    "compensation": {"compensation_type": "git_revert"},
}
NAMED = Linked("sprint", "3", "planning", UUID(int=3))
GOOD_ROW = {
    "retry_count": 0,
    "max_retries": 3,
    "apply_retries": 0,
    "current_load": 0,
    "tasks": [],
    "retries": 0,
    "total_tasks": 2,
    "started_tasks": 2,
    "completed_tasks": 2,
    "failed_tasks": 0,
    "ended_tasks": 2,
    "critical_failures": 1,
    "frozen": False,
    "landing_approval": None,
    "total_workstreams": 2,
    "completed_workstreams": 1,
    "skipped_workstreams": 1,
    "ended_workstreams": 2,
    "owner": "somebody",
}
SATISFIED = {"test_gate": "PASSED", "step": "S_SUCCESS"}  # what a dependency of that type must be; else completed
# The triggers that what is favourable to the others stands in the way of.
CONTRARY: dict[tuple[str, str], dict[str, Any]] = {
    ("task", "dependency_check_failed"): {"depends_on": "running", "gates": "FAILED"},
    ("workstream", "dependency_check_failed"): {"depends_on": "executing"},
    ("workstream", "step_fails"): {"steps": "S_FAILED"},
    ("workstream", "patch_set_aside"): {"patches": "quarantined"},
    ("workstream", "tasks_lost"): {"row": {"completed_tasks": 1}},
    ("uet_worker", "task_assigned"): {"row": {"current_load": 1}},
    ("test_gate", "dependency_failed"): {"depends_on": "FAILED"},
    ("step", "failure"): {"metadata": {"exit_code": 1}},
    ("workstream", "max_retries_exceeded"): {"row": {"retry_count": 3}},
}


def linked(**states: str) -> dict[str, tuple[Linked, ...]]:
    """Role -> two instances in that role, both in the state given."""
    return {role: (Linked("any", "1", state), Linked("any", "2", state)) for role, state in states.items()}


def favourable(definition: Definition, state: str, trigger: str, *, granted: bool = True, **changed: Any) -> Case:
    """A case in which the guards of a trigger hold; `metadata`, `row` and `linked` change single facts of it."""
    contrary = dict(CONTRARY.get((definition.type, trigger), {}))
    metadata = GOOD_METADATA | contrary.pop("metadata", {}) | changed.pop("metadata", {})
    row = GOOD_ROW | contrary.pop("row", {}) | changed.pop("row", {})
    around = {
        "pull_request": "merged",
        "depends_on": SATISFIED.get(definition.type, "completed"),
        "blocked_by_gates": "PASSED",
        "gates": "PASSED",
        "patches": "verified",
        "steps": "S_SUCCESS",
        "workers": "IDLE",
        "sprint": "active",
        "stories": "done",
    }
    facts: dict[str, Any] = {
        "context": {"author": "author", "task_description": "build"},
        "by": "somebody",
        "version": 3,
        "named": NAMED,
    } | changed
    facts["linked"] = linked(**(around | contrary | facts.pop("linked", {})))
    return Case(state=state, trigger=trigger, granted=granted, metadata=metadata, row=row, **facts)


def decided(type_: str, state: str, trigger: str, facts: dict[str, Any], version: str | None = None) -> Any:
    """What becomes of a trigger that would be applied but for these facts: `Applied` or `Rejected`."""
    definition = catalogue().get(type_, version)
    outcome = decide(definition, favourable(definition, state, trigger, **facts))
    assert isinstance(outcome, Applied | Rejected)
    return outcome
