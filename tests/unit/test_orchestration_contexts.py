"""What an instance is created with: a machine says which fields it cannot work with, and takes the rest."""

from typing import Any

import pytest

from interlock.workflows.catalogue import catalogue

Facts = dict[str, Any]
W = "01890000-0000-7000-8000-000000000000"
NEWEST = {each.type: each for each in catalogue().newest.values()}

CONTEXTS: list[tuple[str, Facts, str]] = [
    ("task", {}, "workstream_id"),
    ("task", {"workstream_id": W, "max_retries": -1}, "max_retries"),
    ("task", {"workstream_id": W, "max_retries": True}, "max_retries"),
    ("task", {"workstream_id": W, "timeout_sec": 0}, "timeout_sec"),
    ("task", {"workstream_id": W, "timeout_sec": float("inf")}, "timeout_sec"),
    ("task", {"workstream_id": W, "is_critical": "yes"}, "is_critical"),
    ("task", {"workstream_id": W, "required_capabilities": "git"}, "required_capabilities"),
    ("task", {"workstream_id": W, "expected_exit_codes": []}, "expected_exit_codes"),
    ("task", {"workstream_id": W, "expected_exit_codes": [True]}, "expected_exit_codes"),
    ("task", {"workstream_id": W, "priority": 1.5}, "priority"),
    ("task", {"workstream_id": W, "backoff": {"base": -1}}, "backoff"),
    ("task", {"workstream_id": W, "backoff": {"factor": 11}}, "backoff"),
    ("task", {"workstream_id": W, "backoff": {"cap": "1h"}}, "backoff"),
    ("task", {"workstream_id": W, "backoff": 5}, "backoff"),
    ("task", {"workstream_id": W, "inputs": [W]}, "inputs"),
    ("task", {"workstream_id": W, "inputs": {"V": W}}, "inputs"),
    ("task", {"workstream_id": W, "inputs": {"A-B": {"task": W}}}, "inputs"),
    ("task", {"workstream_id": W, "inputs": {"V": {"task": "build/compile"}}}, "inputs"),
    ("task", {"workstream_id": W, "inputs": {"V": {"task": W, "key": 1}}}, "inputs"),
    ("task", {"workstream_id": "demo/w"}, "workstream_id"),
    ("task", {"workstream_id": W, "depends_on": ["demo/w/t"]}, "depends_on"),
    ("task", {"workstream_id": W, "depends_on": W}, "depends_on"),
    ("task", {"workstream_id": W, "gates": ["lint"]}, "gates"),
    ("task", {"workstream_id": W, "blocked_by_gates": [7]}, "blocked_by_gates"),
    ("workstream", {}, "run_id"),
    ("workstream", {"run_id": "demo"}, "run_id"),
    ("workstream", {"run_id": W, "depends_on": ["w"]}, "depends_on"),
    ("workstream", {"run_id": W, "task_count": -1}, "task_count"),
    ("worker", {"capabilities": ["git", ""]}, "capabilities"),
    ("worker", {"affinity": {"workstreams": "w"}}, "affinity"),
    ("worker", {"max_concurrent_tasks": 0}, "max_concurrent_tasks"),
    ("patch_ledger", {"patch_id": "p"}, "workstream_id"),
    ("patch_ledger", {"patch_id": "p", "workstream_id": W, "task_id": "demo/w/t"}, "task_id"),
    ("test_gate", {"gate_type": "LINT", "workstream_id": "w"}, "workstream_id"),
    ("test_gate", {"gate_type": "lint"}, "gate_type"),
    ("circuit_breaker", {"tool_id": ""}, "tool_id"),
    ("circuit_breaker", {"tool_id": "git", "failure_threshold": 0}, "failure_threshold"),
    ("circuit_breaker", {"tool_id": "git", "cooldown_seconds": 0}, "cooldown_seconds"),
    ("circuit_breaker", {"tool_id": "git", "success_threshold": 0}, "success_threshold"),
    ("deprecation", {"version": "1.0.0", "kind": "version"}, "type"),
    ("deprecation", {"type": "task", "version": "1.0.0", "kind": "guard"}, "kind"),
    ("deprecation", {"type": "task", "version": "1.0.0", "kind": "version", "remove_after": "soon"}, "remove_after"),
    ("operator_grant", {}, "name"),
    ("operator_grant", {"name": "ann", "until": "2026-11-21T15:00:00"}, "until"),
    ("operator_grant", {"name": "ann", "until": "tomorrow"}, "until"),
    ("operator_grant", {"name": "ann", "until": 5}, "until"),
    ("job", {"depth": 6}, "depth"),
    ("job", {"depth": -1}, "depth"),
    ("job", {"depth": 0, "worker_count": 11}, "worker_count"),
    ("job", {"depth": 0, "worker_count": 0}, "worker_count"),
    ("job", {"depth": 0, "parent_job_id": 3}, "parent_job_id"),
    ("job", {"depth": 1, "parent_job_id": "J-1"}, "parent_job_id"),
]
SOUND_CONTEXTS: list[tuple[str, Facts]] = [
    ("run", {}),
    ("workstream", {"run_id": W, "is_critical": True, "task_count": 0}),
    (
        "task",
        {
            "workstream_id": W,
            "is_critical": False,
            "max_retries": 0,
            "timeout_sec": 0.5,
            "backoff": {"base": 0, "factor": 1, "cap": 600.0},
            "required_capabilities": [],
            "expected_exit_codes": [0, -9],
            "priority": -3,
        },
    ),
    ("worker", {"capabilities": ["git"], "affinity": {"workstreams": ["w"]}, "max_concurrent_tasks": 1}),
    ("uet_worker", {}),
    ("patch_ledger", {"patch_id": "p", "workstream_id": W}),
    ("test_gate", {"gate_type": "SECURITY"}),
    ("circuit_breaker", {"tool_id": "git", "failure_threshold": 5, "cooldown_seconds": 60, "success_threshold": 1}),
    ("supervised_worker", {}),
    ("operator_grant", {"name": "ann", "until": "2026-11-21T15:00:00+01:00"}),
    ("deprecation", {"type": "task", "version": "1.0.0", "kind": "state", "name": "blocked", "guide": "wait"}),
    ("job", {"depth": 5, "worker_count": 10, "parent_job_id": W}),
]


@pytest.mark.parametrize(("type_", "context", "field"), CONTEXTS)
def test_a_context_that_a_machine_cannot_work_with_is_refused_by_its_field(
    type_: str, context: Facts, field: str
) -> None:
    (wrong,) = NEWEST[type_].wrong_fields(context)
    assert wrong.startswith(f"{field} must be ")


@pytest.mark.parametrize(("type_", "context"), SOUND_CONTEXTS)
def test_a_context_within_its_limits_is_taken(type_: str, context: Facts) -> None:
    assert NEWEST[type_].wrong_fields(context) == ()
