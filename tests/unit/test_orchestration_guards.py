"""Every guard of the orchestration, both ways: what lets a trigger through, and what is missing where it is refused."""

from typing import Any

import pytest

from interlock.workflows.catalogue import catalogue
from interlock.workflows.outcomes import Applied, Rejected
from tests.unit.cases import decided

Facts = dict[str, Any]
NEWEST = {each.type: each for each in catalogue().newest.values()}
HOLDS_ONE: tuple[str, Facts] = ("holds_no_task", {"row": {"current_load": 1}})
STARTS = ("task", "queued", "worker_started")

# (type, state, trigger), the guard that refuses, and the facts under which it does; all else is favourable.
REFUSED: list[tuple[str, str, str, str, Facts]] = [
    ("task", "pending", "scheduler_assigned", "dependencies_completed", {"linked": {"depends_on": "running"}}),
    ("task", "pending", "scheduler_assigned", "dependencies_completed", {"linked": {"depends_on": "failed"}}),
    ("task", "pending", "scheduler_assigned", "dependencies_completed", {"linked": {"blocked_by_gates": "RUNNING"}}),
    ("task", "blocked", "dependency_satisfied", "dependencies_completed", {"linked": {"depends_on": "cancelled"}}),
    ("task", "blocked", "dependency_satisfied", "dependencies_completed", {"linked": {"blocked_by_gates": "FAILED"}}),
    ("task", "pending", "dependency_check_failed", "dependency_missing", {"linked": {"depends_on": "completed"}}),
    ("task", "queued", "dependency_check_failed", "gate_failed", {"linked": {"gates": "RUNNING"}}),
    (*STARTS, "worker_identified", {"metadata": {"worker_id": None}}),
    (*STARTS, "worker_identified", {"metadata": {"worker_id": "w-1"}}),
    (*STARTS, "worker_capable", {"context": {"required_capabilities": ["git", "rust"]}}),
    (
        *STARTS,
        "worker_capable",
        {"context": {"required_capabilities": ["git"]}, "metadata": {"capabilities": [{"git": 1}]}},
    ),
    *(("schedule", "active", each, "own_schedule", {"row": {"owner": "ann"}}) for each in ("pause", "end")),
    ("schedule", "paused", "resume", "own_schedule", {"row": {"owner": "ann"}}),
    ("schedule", "active", "lapse", "reason_given", {"metadata": {"reason": " "}}),
    ("job", "PENDING", "allocate_resources", "workers_allocated", {"linked": {"workers": "RUNNING"}}),
    ("job", "PENDING", "allocate_resources", "workers_allocated", {"context": {"worker_count": 3}}),
    ("task", "running", "execution_completed", "exit_code_expected", {"metadata": {"exit_code": 1}}),
    ("task", "running", "execution_completed", "exit_code_expected", {"metadata": {"exit_code": False}}),
    ("task", "running", "execution_completed", "exit_code_expected", {"metadata": {"exit_code": "0"}}),
    (
        "task",
        "running",
        "execution_completed",
        "exit_code_expected",
        {"context": {"expected_exit_codes": [2]}, "metadata": {"exit_code": 0}},
    ),
    ("task", "validating", "validation_passed", "gates_passed", {"linked": {"gates": "FAILED"}}),
    ("task", "validating", "validation_passed", "gates_passed", {"linked": {"gates": "PENDING"}}),
    ("task", "validating", "validation_passed", "patches_verified", {"linked": {"patches": "applied"}}),
    ("task", "validating", "validation_passed", "patches_verified", {"linked": {"patches": "rolled_back"}}),
    ("workstream", "planned", "all_tasks_created", "tasks_all_created", {"context": {"task_count": 3}}),
    ("workstream", "planned", "all_tasks_created", "dependencies_completed", {"linked": {"depends_on": "executing"}}),
    ("workstream", "planned", "all_tasks_created", "dependencies_completed", {"linked": {"depends_on": "skipped"}}),
    ("workstream", "planned", "dependency_check_failed", "dependency_missing", {"linked": {"depends_on": "completed"}}),
    ("workstream", "blocked", "dependency_satisfied", "dependencies_completed", {"linked": {"depends_on": "failed"}}),
    ("workstream", "ready", "first_task_started", "task_started", {"row": {"started_tasks": 0}}),
    ("workstream", "executing", "all_tasks_completed", "tasks_all_completed", {"row": {"completed_tasks": 1}}),
    ("workstream", "executing", "all_tasks_completed", "patches_verified", {"linked": {"patches": "quarantined"}}),
    ("workstream", "executing", "critical_task_failed", "critical_failure", {"row": {"critical_failures": 0}}),
    ("workstream", "executing", "patch_set_aside", "patch_lost", {"linked": {"patches": "apply_failed"}}),
    ("workstream", "executing", "tasks_lost", "tasks_ended_short", {"row": {"completed_tasks": 2}}),
    ("workstream", "executing", "tasks_lost", "tasks_ended_short", {"row": {"ended_tasks": 1}}),
    ("workstream", "validating", "validation_passed", "gates_passed", {"linked": {"gates": "BLOCKED"}}),
    ("workstream", "validating", "validation_passed", "patches_verified", {"linked": {"patches": "created"}}),
    ("workstream", "validating", "validation_passed", "phase_open", {"row": {"frozen": True}}),
    (
        "workstream",
        "validating",
        "validation_passed",
        "landing_approved",
        {"row": {"landing_approval": {"state": "pending"}}},
    ),
    ("run", "running", "complete", "workstreams_succeeded", {"row": {"ended_workstreams": 1}}),
    ("run", "running", "complete", "workstreams_succeeded", {"row": {"completed_workstreams": 0}}),
    ("run", "running", "fail", "run_lost", {"row": {"critical_failures": 0}}),
    (
        "run",
        "running",
        "fail",
        "run_lost",
        {"row": {"critical_failures": 0, "completed_workstreams": 0, "ended_workstreams": 1}},
    ),
    ("supervised_worker", "IDLE", "start_task", "worker_has_capacity", {"metadata": {"tasks": ["a", "b"]}}),
    ("supervised_worker", "IDLE", "start_task", "worker_has_capacity", {"metadata": {"tasks": "a"}}),
    (
        "supervised_worker",
        "IDLE",
        "start_task",
        "worker_has_capacity",
        {"context": {"capacity": 2}, "metadata": {"tasks": ["a", "a"]}},
    ),
    ("supervised_worker", "RUNNING", "complete_tasks", "no_pending_tasks", {"row": {"tasks": ["a"]}}),
    (
        "supervised_worker",
        "RUNNING",
        "complete_tasks",
        "no_pending_tasks",
        {"row": {"tasks": ["a", "b"]}, "metadata": {"completed_tasks": ["b"]}},
    ),
    (
        "supervised_worker",
        "RUNNING",
        "error_unrecoverable",
        "error_not_retryable",
        {"row": {"retries": 2}, "metadata": {"retryable": True}},
    ),
    ("job", "SUBMITTED", "validate", "schema_valid", {"context": {"task_description": " "}}),
    ("job", "SUBMITTED", "validate", "schema_valid", {"context": {"task_description": "a", "worker_count": 11}}),
    ("job", "SUBMITTED", "validate", "schema_valid", {"context": {"task_description": "a", "workers": ["a", "b"]}}),
    ("uet_worker", "IDLE", "task_assigned", "task_named", {"metadata": {"task_id": None}}),
    ("uet_worker", "IDLE", "task_assigned", "holds_a_task", {"row": {"current_load": 0}}),
    (
        "uet_worker",
        "IDLE",
        "task_assigned",
        "task_within_capabilities",
        {"context": {"capabilities": ["git"]}, "metadata": {"required_capabilities": ["rust"]}},
    ),
    *(("worker", state, "shutdown_requested", *HOLDS_ONE) for state in ("busy", "idle")),
    *(("uet_worker", state, "task_completed", *HOLDS_ONE) for state in ("BUSY", "DRAINING")),
    ("uet_worker", "IDLE", "shutdown_requested", *HOLDS_ONE),
    (
        "worker",
        "idle",
        "task_assigned",
        "task_within_capabilities",
        {"context": {"capabilities": ["git"]}, "metadata": {"required_capabilities": ["git", "rust"]}},
    ),
    ("patch_ledger", "created", "validation_failed", "reason_given", {"metadata": {"reason": ""}}),
    ("patch_ledger", "validated", "violate_policy", "reason_given", {"metadata": {"reason": None}}),
    ("patch_ledger", "applied", "tests_failed", "reason_given", {"metadata": {"reason": 7}}),
    ("patch_ledger", "applied", "tests_passed", "gates_passed", {"linked": {"gates": "FAILED"}}),
    ("patch_ledger", "apply_failed", "give_up", "reason_given", {"metadata": {"reason": ""}}),
    ("patch_ledger", "apply_failed", "retry_apply", "apply_retries_left", {"row": {"apply_retries": 3}}),
    ("patch_ledger", "apply_failed", "drop", "authorized", {"metadata": {"authorized_by": None}}),
    ("patch_ledger", "quarantined", "drop", "authorized", {"metadata": {"authorized_by": ""}}),
    ("patch_ledger", "quarantined", "drop", "reason_given", {"metadata": {"reason": ""}}),
    ("patch_ledger", "committed", "roll_back", "authorized", {"metadata": {"authorized_by": ""}}),
    ("patch_ledger", "committed", "roll_back", "reason_given", {"metadata": {"reason": ""}}),
    ("patch_ledger", "committed", "roll_back", "compensated", {"metadata": {"compensation": {}}}),
    ("test_gate", "PENDING", "gate_started", "gate_dependencies_passed", {"linked": {"depends_on": "PENDING"}}),
    ("test_gate", "PENDING", "gate_started", "gate_dependencies_passed", {"linked": {"depends_on": "FAILED"}}),
    ("test_gate", "PENDING", "dependency_failed", "gate_dependency_failed", {"linked": {"depends_on": "RUNNING"}}),
    ("test_gate", "BLOCKED", "dependency_passed", "gate_dependencies_passed", {"linked": {"depends_on": "BLOCKED"}}),
    ("test_gate", "RUNNING", "gate_passed", "exit_code_given", {"metadata": {"exit_code": None}}),
    ("test_gate", "RUNNING", "gate_passed", "exit_code_expected", {"metadata": {"exit_code": 1}}),
    ("test_gate", "RUNNING", "gate_failed", "exit_code_given", {"metadata": {"exit_code": 1.0}}),
    ("test_gate", "RUNNING", "gate_failed", "exit_code_given", {"metadata": {"exit_code": True}}),
    ("test_gate", "RUNNING", "gate_failed", "exit_code_given", {"metadata": {"exit_code": None}}),
    ("test_gate", "RUNNING", "gate_failed", "exit_code_given", {"metadata": {"exit_code": 2**31}}),
    ("step", "S_PENDING", "dependencies_met", "steps_before_succeeded", {"linked": {"depends_on": "S_FAILED"}}),
    ("step", "S_RUNNING", "success", "exit_code_expected", {"metadata": {"exit_code": 2}}),
    ("step", "S_RUNNING", "failure", "exit_code_unexpected", {"metadata": {"exit_code": 0}}),
    ("step", "S_FAILED", "retry_eligible", "retries_left", {"row": {"retry_count": 3}}),
]
REFUSED_OF_OLD: list[tuple[str, str, str, str, str, Facts]] = [
    ("workstream", "0.1.0", "S_RUNNING", "all_steps_succeed", "steps_succeeded", {"linked": {"steps": "S_RUNNING"}}),
    ("workstream", "0.1.0", "S_RUNNING", "step_fails", "step_failed", {"linked": {"steps": "S_RUNNING"}}),
    ("workstream", "0.1.0", "S_FAILED", "retry_eligible", "retries_left", {"row": {"retry_count": 3}}),
    ("workstream", "0.1.0", "S_FAILED", "max_retries_exceeded", "retries_used_up", {"row": {"retry_count": 2}}),
    ("workstream", "0.2.0", "executing", "critical_task_failed", "critical_failure", {"row": {"critical_failures": 0}}),
    (
        "workstream",
        "1.0.0",
        "executing",
        "critical_task_failed",
        "critical_failure",
        {"row": {"critical_failures": 0, "completed_tasks": 1}},
    ),
    (
        "run",
        "1.0.0",
        "running",
        "fail",
        "critical_failure",
        {"row": {"critical_failures": 0, "completed_workstreams": 0}},
    ),
    ("task", "0.2.0", "queued", "worker_started", "worker_named", {"metadata": {"worker_id": ""}}),
    ("task", "0.2.0", "running", "execution_completed", "exit_code_zero", {"metadata": {"exit_code": 2}}),
]


@pytest.mark.parametrize(
    ("type_", "state", "trigger", "guard", "facts"),
    [pytest.param(*each, id=f"{each[0]} {each[2]}: {each[3]} {number}") for number, each in enumerate(REFUSED)],
)
def test_a_guard_refuses_by_its_name_and_words_and_lets_through_what_it_asks_for(
    type_: str, state: str, trigger: str, guard: str, facts: Facts
) -> None:
    outcome = decided(type_, state, trigger, facts)
    assert isinstance(outcome, Rejected)
    assert guard in outcome.reason["missing"]
    (words,) = {each.description for move in NEWEST[type_].transitions for each in move.when if each.name == guard}
    assert words in outcome.reason["message"]
    assert isinstance(decided(type_, state, trigger, {}), Applied)


@pytest.mark.parametrize(
    ("type_", "version", "state", "trigger", "guard", "facts"),
    [pytest.param(*each, id=f"{each[0]} {each[1]} {each[3]}") for each in REFUSED_OF_OLD],
)
def test_older_versions_keep_their_own_guards(
    type_: str, version: str, state: str, trigger: str, guard: str, facts: Facts
) -> None:
    outcome = decided(type_, state, trigger, facts, version)
    assert isinstance(outcome, Rejected)
    assert outcome.reason["missing"] == [guard]
    assert isinstance(decided(type_, state, trigger, {}, version), Applied)


def test_every_guard_of_every_orchestration_machine_is_tried_above() -> None:
    tried = {each[3] for each in REFUSED} | {each[4] for each in REFUSED_OF_OLD}
    chosen = {"retries_used_up", "retries_left"}  # between two destinations, below
    delivery = {"story", "sprint", "pr_review", "approval"}
    guards = {
        guard.name
        for definition in catalogue()
        if definition.type not in delivery
        for move in definition.transitions
        for guard in move.when
    }
    assert guards - tried <= chosen
