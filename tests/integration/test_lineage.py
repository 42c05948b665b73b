"""The older machines on what they are linked to: named in a context, looked up by the engine, counted by PostgreSQL."""

from typing import Any

import psycopg
import pytest

from interlock.workers.runtime import Runtime
from tests.walking import Walker

pytestmark = pytest.mark.integration


@pytest.fixture
def walker(runtime: Runtime, dba: "psycopg.Connection[Any]") -> Walker:
    return Walker(runtime, dba)


@pytest.mark.parametrize(
    ("type_", "version", "trigger", "guard"),
    [
        ("step", "0.1.0", "dependencies_met", "steps_before_succeeded"),
        ("task", "0.2.0", "scheduler_assigned", "dependencies_completed"),
    ],
)
def test_what_depends_on_another_waits_for_it(
    walker: Walker, type_: str, version: str, trigger: str, guard: str
) -> None:
    """LEGACY-3 (step) and LEGACY-5 (task, pending → queued)."""
    definition = walker.get(type_, version)
    first = walker.born(definition)
    second = walker.born(definition, depends_on=[str(first)])
    refused = walker.ask(second, trigger)
    assert (refused.status, refused.result and refused.result["missing"]) == ("rejected", [guard])
    (done,) = definition.terminal & {"S_SUCCESS", "completed"}
    walker.lead(definition, first, done)
    assert walker.ask(second, trigger).status == "applied"


def test_a_workstream_of_steps_succeeds_once_all_of_them_have(walker: Walker) -> None:
    """LEGACY-4."""
    workstream = walker.at(walker.get("workstream", "0.1.0"), "S_RUNNING")
    step = walker.get("step")
    steps = [walker.born(step, workstream_id=str(workstream)) for _ in range(2)]
    walker.lead(step, steps[0], "S_SUCCESS")
    assert walker.ask(workstream, "all_steps_succeed").status == "rejected"
    assert walker.ask(workstream, "step_fails").status == "rejected"
    walker.lead(step, steps[1], "S_SUCCESS")
    assert walker.ask(workstream, "all_steps_succeed").status == "applied"


def test_a_workstream_counts_its_tasks(walker: Walker) -> None:
    """LEGACY-6: as many tasks as specified, one started, all completed."""
    definition, task = walker.get("workstream", "0.2.0"), walker.get("task", "0.2.0")
    workstream = walker.born(definition, task_count=2)
    tasks = [walker.born(task, workstream_id=str(workstream))]
    assert walker.ask(workstream, "all_tasks_created").status == "rejected"
    tasks.append(walker.born(task, workstream_id=str(workstream)))
    assert walker.ask(workstream, "all_tasks_created").status == "applied"
    assert walker.ask(workstream, "first_task_started").status == "rejected"
    walker.lead(task, tasks[0], "completed")
    assert walker.ask(workstream, "first_task_started").status == "applied"
    assert walker.ask(workstream, "all_tasks_completed").status == "rejected"
    walker.lead(task, tasks[1], "completed")
    assert walker.ask(workstream, "all_tasks_completed").status == "applied"


@pytest.mark.parametrize(("critical", "status"), [(True, "applied"), (False, "rejected")])
def test_only_a_critical_task_fails_its_workstream(walker: Walker, critical: bool, status: str) -> None:
    """LEGACY-6, executing → failed."""
    workstream = walker.at(walker.get("workstream", "0.2.0"), "executing")
    walker.at(walker.get("task", "0.2.0"), "failed", workstream_id=str(workstream), is_critical=critical)
    assert walker.ask(workstream, "critical_task_failed").status == status


def test_retries_are_counted_in_history_and_limited_by_the_context(walker: Walker) -> None:
    """LEGACY-2: retry_count never exceeds max_retries."""
    step = walker.get("step")
    made = walker.at(step, "S_FAILED", max_retries=1)
    assert walker.ask(made, "retry_eligible").status == "applied"
    assert walker.ask(made, "retry_attempt").status == "applied"
    assert walker.ask(made, "failure", exit_code=1).status == "applied"
    refused = walker.ask(made, "retry_eligible")
    assert refused.result is not None
    assert refused.result["missing"] == ["retries_left"]
