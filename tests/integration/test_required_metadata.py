"""What every event must say (EVENT-4), whoever fired its trigger: the values, not only the keys."""

from typing import Any
from uuid import UUID

import psycopg
import pytest

from interlock.workers.runtime import Runtime
from tests.crewing import silence
from tests.running import Stage
from tests.walking import Walker

pytestmark = pytest.mark.integration
Dba = psycopg.Connection[Any]
Said = dict[str, Any]


@pytest.fixture
def walker(runtime: Runtime, dba: Dba) -> Walker:
    return Walker(runtime, dba)


def events(stage: Stage | Walker, instance: UUID, *names: str) -> dict[str, tuple[Any, ...]]:
    """Trigger -> what its (last) event says under these names."""
    rows = stage.dba.execute(
        "SELECT trigger, metadata FROM workflow_transitions WHERE workflow_id = %s ORDER BY seq", (instance,)
    ).fetchall()
    return {trigger: tuple(metadata[name] for name in names) for trigger, metadata in rows}


def test_events_of_a_task_say_who_how_long_how_often_and_how_it_ended(stage: Stage) -> None:
    stage.submit({"a": {}}, {"t": {"workstream": "a", "max_retries": 1, "backoff": {"base": 0}}})
    stage.start()
    stage.begin("t")
    stage.dba.execute("UPDATE tasks SET created_at = created_at - interval '1 h', started_at = now() - interval '90 s'")
    stage.fire("t", "timeout_exceeded")
    stage.fire("t", "retry_delay_elapsed")
    stage.work("t")
    worker = str(stage.ids["worker"])
    said = events(stage, stage.ids["t"], "worker_id", "retry_count", "exit_code", "timeout_occurred")
    assert said == {
        "scheduler_assigned": (None, 0, None, False),
        "timeout_exceeded": (worker, 0, None, True),  # as it was when the move was made
        "retry_delay_elapsed": (None, 1, None, False),
        "worker_started": (worker, 1, None, False),
        "execution_completed": (worker, 1, 0, False),
        "validation_passed": (None, 1, None, False),
    }
    lasted = events(stage, stage.ids["t"], "duration_seconds")
    assert lasted["scheduler_assigned"] == (None,)
    assert 90 <= lasted["timeout_exceeded"][0] < 150
    assert 0 <= lasted["execution_completed"][0] < 60


def test_events_of_a_workstream_count_its_tasks(stage: Stage) -> None:
    stage.submit(
        {"a": {}},
        {"t": {"workstream": "a"}, "u": {"workstream": "a", "max_retries": 0, "critical": True}},
    )
    stage.start()
    stage.work("t")
    stage.work("u", exit_code=1)
    said = events(stage, stage.ids["a"], "total_tasks", "completed_tasks", "failed_tasks", "critical_failure")
    assert said == {
        "all_tasks_created": (2, 0, 0, False),
        "first_task_started": (2, 0, 0, False),
        "critical_task_failed": (2, 1, 1, True),
    }
    assert all(0 <= seconds < 60 for (seconds,) in events(stage, stage.ids["a"], "duration_seconds").values())


def checks(well: bool, tests: bool) -> Said:
    return {"format": well, "scope": well, "constraints": well, "tests": tests}


def test_events_of_a_patch_say_what_was_checked_and_what_came_of_it(walker: Walker) -> None:
    """Also where whoever says that it is valid does not name the checks."""
    patch = walker.get("patch_ledger")
    made = walker.at(patch, "verified")
    walker.ask(made, "commit_succeeded", commit_sha="abc123")
    walker.ask(made, "roll_back", authorized_by="ann", reason="regression", compensation={"actions": []})
    said = events(walker, made, "validation_results", "commit_sha", "quarantine_reason")
    assert said == {
        "validation_passed": (checks(True, False), None, None),
        "accept": (checks(True, False), None, None),
        "apply_succeeded": (checks(True, False), None, None),
        "tests_passed": (checks(True, True), None, None),
        "commit_succeeded": (checks(True, True), "abc123", None),
        "roll_back": (checks(True, True), "abc123", None),
    }
    row = walker.dba.execute("SELECT patch_id FROM patch_ledger_entries WHERE ledger_id = %s", (made,)).fetchone()
    assert set(events(walker, made, "patch_id").values()) == {row}


def test_a_refused_patch_says_which_check_failed_and_why(walker: Walker) -> None:
    made = walker.born(walker.get("patch_ledger"))
    walker.ask(made, "validation_failed", reason="out of scope", validation_results={"format": True, "scope": False})
    said = events(walker, made, "validation_results", "quarantine_reason")
    assert said == {"validation_failed": (checks(False, False) | {"format": True}, "out of scope")}


def test_events_of_a_worker_say_how_it_is(walker: Walker) -> None:
    worker = walker.get("worker")
    made = walker.at(worker, "busy")
    walker.dba.execute("UPDATE workers SET current_load = 1")
    silence(walker.dba, made, 130)
    walker.ask(made, "health_check_timeout")
    walker.ask(made, "max_timeout_exceeded")
    said = events(walker, made, "heartbeat_status", "current_load", "crash_detected")
    assert said == {
        "registration_complete": ("healthy", 0, False),
        "task_assigned": ("healthy", 0, False),
        "health_check_timeout": ("silent", 1, False),
        "max_timeout_exceeded": ("silent", 1, True),
    }
    ages = events(walker, made, "last_heartbeat_age_seconds")
    assert ages["registration_complete"][0] < 60
    assert 130 <= ages["health_check_timeout"][0] < 190
