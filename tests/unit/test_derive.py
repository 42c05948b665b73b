"""What a workstream, a run and a task are owed: legal, let through by its guards, and never for ever nothing."""

from dataclasses import asdict, fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.workflows.catalogue import catalogue
from interlock.workflows.decide import decide
from interlock.workflows.guard_context import Case, Linked
from interlock.workflows.outcomes import Applied
from interlock.workflows.scheduling import next_trigger
from interlock.workflows.scheduling.counts import (
    TASK_COUNTS,
    RunCounts,
    WorkstreamCounts,
    run_trigger,
    workstream_trigger,
)

WORKSTREAM, RUN, TASK = (catalogue().get(type_) for type_ in ("workstream", "run", "task"))
TASK_STATES = ("pending", "queued", "running", "validating", "completed", "failed", "retrying", "cancelled", "blocked")
WORKSTREAM_STATES = tuple(each.name for each in fields(RunCounts) if each.name not in ("state", "critical_failures"))

few = st.integers(0, 3)


@st.composite
def workstreams(draw: Any) -> WorkstreamCounts:
    """Any workstream, the impossible ones too (a scheduler may look between two commits)."""
    tasks = {state: draw(few) for state in TASK_STATES}
    return WorkstreamCounts(
        state=draw(st.sampled_from(WORKSTREAM.states)),
        **tasks,
        critical_failures=draw(st.integers(0, tasks["failed"])),
        quarantined_patches=draw(st.integers(0, 1)),
        unfinished_dependencies=draw(st.integers(0, 1)),
        skipped_dependencies=draw(st.integers(0, 1)),
        dead_dependencies=draw(st.integers(0, 1)),
        task_count=draw(st.none() | few),
    )


@st.composite
def runs(draw: Any) -> RunCounts:
    """Any run."""
    counts = {state: draw(few) for state in WORKSTREAM_STATES}
    critical = draw(st.integers(0, counts["failed"]))
    return RunCounts(state=draw(st.sampled_from(RUN.states)), **counts, critical_failures=critical)


def case_of(counts: WorkstreamCounts, trigger: str) -> Case:
    """The question that firing what is owed would put, with the facts that these counts stand for."""
    depends_on = {
        "executing": counts.unfinished_dependencies,
        "skipped": counts.skipped_dependencies,
        "failed": counts.dead_dependencies,
    }
    patches = {"quarantined": counts.quarantined_patches}
    roles = {"depends_on": depends_on, "patches": patches}
    return Case(
        state=counts.state,
        version=1,
        context={} if counts.task_count is None else {"task_count": counts.task_count},
        trigger=trigger,
        by="scheduler",
        linked={
            role: tuple(Linked("any", f"{state}{number}", state) for state, n in states.items() for number in range(n))
            for role, states in roles.items()
        },
        row={
            "total_tasks": sum(getattr(counts, state) for state in TASK_STATES),
            "started_tasks": counts.started,
            "completed_tasks": counts.completed,
            "failed_tasks": counts.failed,
            "ended_tasks": counts.completed + counts.failed + counts.cancelled,
            "critical_failures": counts.critical_failures,
        },
    )


@given(workstreams())
def test_what_a_workstream_is_owed_its_machine_applies(counts: WorkstreamCounts) -> None:
    trigger = workstream_trigger(counts)
    if trigger is not None:
        outcome = decide(WORKSTREAM, case_of(counts, trigger))
        assert isinstance(outcome, Applied), outcome


@given(runs())
def test_what_a_run_is_owed_its_machine_applies(counts: RunCounts) -> None:
    trigger = run_trigger(counts)
    if trigger is not None:
        row = {
            "total_workstreams": sum(getattr(counts, state) for state in WORKSTREAM_STATES),
            "completed_workstreams": counts.completed,
            "skipped_workstreams": counts.skipped,
            "ended_workstreams": counts.completed + counts.skipped + counts.failed + counts.cancelled,
            "critical_failures": counts.critical_failures,
        }
        asked = Case(state=counts.state, version=1, context={}, trigger=trigger, by="scheduler", row=row)
        assert isinstance(decide(RUN, asked), Applied)


@given(workstreams())
def test_a_workstream_whose_tasks_have_all_ended_comes_to_its_end(counts: WorkstreamCounts) -> None:
    unended = {state: 0 for state in TASK_STATES if state not in ("completed", "failed", "cancelled")}
    ended = replace(counts, **unended, unfinished_dependencies=0, task_count=None)
    for _ in WORKSTREAM.states:
        trigger = workstream_trigger(ended)
        if trigger is None:
            break
        outcome = decide(WORKSTREAM, case_of(ended, trigger))
        assert isinstance(outcome, Applied)
        ended = replace(ended, state=outcome.dest)
    # Validating is somebody's to pass or fail, paused somebody's to resume unless a critical failure has decided it.
    decided = set[str]() if ended.critical_failures else {"paused"}
    assert ended.state in WORKSTREAM.terminal | {"validating"} | decided


@given(runs())
def test_a_running_run_whose_workstreams_have_all_ended_is_owed_its_end(counts: RunCounts) -> None:
    over = {state: 0 for state in WORKSTREAM_STATES if state not in WORKSTREAM.terminal}
    assert run_trigger(replace(counts, state="running", **over)) in ("complete", "fail")


@given(runs() | workstreams())
def test_nothing_is_owed_to_what_has_ended(counts: RunCounts | WorkstreamCounts) -> None:
    for ending in ("completed", "failed", "cancelled", "skipped", "succeeded", "canceled"):
        if isinstance(counts, RunCounts):
            assert run_trigger(replace(counts, state=ending)) is None
        else:
            assert workstream_trigger(replace(counts, state=ending)) is None


def state_by_tasks(counts: WorkstreamCounts) -> str:
    """A workstream's state by its tasks alone (WORKSTREAM-1), written out again."""
    total = sum(getattr(counts, state) for state in TASK_STATES)
    if counts.running:
        return "executing"
    if counts.completed == total:
        return "validating"
    if counts.critical_failures:
        return "failed"
    if counts.blocked:
        return "blocked"
    if counts.pending + counts.queued == total:
        return "ready"
    return "executing"


@given(workstreams())
def test_an_executing_workstream_is_led_where_its_tasks_derive_it_to_be(counts: WorkstreamCounts) -> None:
    counts = replace(counts, state="executing", quarantined_patches=0)
    trigger = workstream_trigger(counts)
    derived = state_by_tasks(counts)
    if derived == "validating":
        assert trigger == "all_tasks_completed"
    elif derived == "failed" or counts.critical_failures:
        # Running tasks do not hold a critical failure up (WORKSTREAM-3).
        assert trigger == "critical_task_failed"
    else:  # executing, or what it cannot go back to: WORKSTREAM-10 once every task has ended
        ended = counts.completed + counts.failed + counts.cancelled
        assert trigger == ("tasks_lost" if ended == counts.total else None)


OWED: list[tuple[str, dict[str, Any], str | None]] = [
    ("planned", {"pending": 2}, "all_tasks_created"),
    ("planned", {"pending": 2, "task_count": 2}, "all_tasks_created"),
    ("planned", {"pending": 1, "task_count": 2}, None),
    ("planned", {"pending": 3, "task_count": 2}, "all_tasks_created"),
    ("planned", {"pending": 2, "unfinished_dependencies": 1}, "dependency_check_failed"),
    ("planned", {"pending": 2, "skipped_dependencies": 1, "unfinished_dependencies": 1}, "skip"),
    ("planned", {"pending": 2, "dead_dependencies": 1, "skipped_dependencies": 1}, "cancel"),
    ("blocked", {"pending": 2, "unfinished_dependencies": 1}, None),
    ("blocked", {"pending": 2}, "dependency_satisfied"),
    ("blocked", {"pending": 2, "skipped_dependencies": 1}, "skip"),
    ("blocked", {"pending": 2, "dead_dependencies": 1}, "cancel"),
    ("ready", {"queued": 2}, None),
    ("ready", {"queued": 1, "running": 1}, "first_task_started"),
    ("ready", {"queued": 1, "completed": 1}, "first_task_started"),  # started and done between two looks
    ("ready", {"queued": 1, "cancelled": 1}, None),
    ("ready", {"cancelled": 2}, "cancel"),
    ("ready", {}, "skip"),
    ("executing", {"completed": 2}, "all_tasks_completed"),
    ("executing", {"completed": 1, "running": 1}, None),
    ("executing", {"completed": 1, "retrying": 1}, None),
    ("executing", {"failed": 1, "pending": 1}, None),  # LEGACY-6: without it, the others go on
    ("executing", {"failed": 1, "running": 1, "critical_failures": 1}, "critical_task_failed"),
    ("executing", {"completed": 1, "failed": 1}, "tasks_lost"),
    ("executing", {"completed": 1, "cancelled": 1}, "tasks_lost"),
    ("executing", {"running": 1, "quarantined_patches": 1}, "patch_set_aside"),
    ("executing", {"failed": 1, "critical_failures": 1, "quarantined_patches": 1}, "critical_task_failed"),
    ("validating", {"completed": 2}, None),
    ("validating", {"completed": 2, "quarantined_patches": 1}, "validation_failed"),
    ("paused", {"failed": 1, "critical_failures": 1}, "critical_task_failed"),
    ("paused", {"failed": 1}, None),
    ("paused", {"failed": 1, "running": 1, "critical_failures": 1}, "critical_task_failed"),
]


@pytest.mark.parametrize(("state", "counts", "trigger"), OWED)
def test_a_workstream_is_owed(state: str, counts: dict[str, Any], trigger: str | None) -> None:
    assert workstream_trigger(WorkstreamCounts(state, **counts)) == trigger


@pytest.mark.parametrize(
    ("state", "counts", "trigger"),
    [
        ("pending", {"completed": 1}, None),
        ("running", {"executing": 1, "completed": 1}, None),
        ("running", {"completed": 1, "skipped": 1}, "complete"),
        ("running", {}, "complete"),
        ("running", {"executing": 1, "failed": 1}, None),
        ("running", {"executing": 1, "failed": 1, "critical_failures": 1}, "fail"),
        ("running", {"completed": 1, "failed": 1}, "fail"),
        ("running", {"completed": 1, "cancelled": 1}, "fail"),
        ("running", {"paused": 1, "completed": 1}, None),
    ],
)
def test_a_run_is_owed(state: str, counts: dict[str, Any], trigger: str | None) -> None:
    assert run_trigger(RunCounts(state, **counts)) == trigger


def test_the_counts_have_every_state_of_what_they_count() -> None:
    assert set(TASK_STATES) == set(TASK.states) <= set(asdict(WorkstreamCounts("ready")))
    assert set(WORKSTREAM_STATES) == set(WORKSTREAM.states)
    assert WorkstreamCounts("ready", **dict.fromkeys(TASK_STATES, 1)).total == len(TASK_STATES)
    assert RunCounts("running", **dict.fromkeys(WORKSTREAM_STATES, 1)).total == len(WORKSTREAM_STATES)
    ended = dict.fromkeys(TASK.terminal, 1)
    assert WorkstreamCounts("ready", **ended).ended == len(TASK.terminal)
    assert RunCounts("running", **dict.fromkeys(WORKSTREAM.terminal, 1)).ended == len(WORKSTREAM.terminal)


def test_no_task_of_a_frozen_phase_is_queued_and_no_workstream_of_it_lands() -> None:
    """PHASE-6."""
    task = {"state": "pending", "unmet": 0, "dead": 0, "failed_before": 0}
    task |= {"workstream_state": "executing", "run_state": "running"}
    counts = dict.fromkeys(TASK_COUNTS, 0) | {"completed": 1, "state": "validating", "task_count": 1}
    workstream = counts | {"run_state": "running", "gates_lost": 0, "gates_open": 0, "landing": False, "approval": None}
    for due, facts, trigger in (
        (next_trigger.task, task, "scheduler_assigned"),
        (next_trigger.workstream, workstream, "land"),
    ):
        assert due({**facts, "frozen": True}) is None
        assert due({**facts, "frozen": False}) == next_trigger.NextStep(trigger)


@pytest.mark.parametrize(
    ("state", "trigger", "reason"),
    [
        ("missing", "ask", None),
        ("pending", None, None),
        ("approved", "land", None),
        ("rejected", "validation_failed", "carol rejected its landing: too late"),
        ("expired", "validation_failed", "nobody decided about its landing in time"),
    ],
)
def test_a_landing_follows_its_approval(state: str, trigger: str | None, reason: str | None) -> None:
    """PHASE-7."""
    approval = {"state": state, "by": "carol", "reason": "too late"}
    facts = dict.fromkeys(TASK_COUNTS, 0) | {"completed": 1, "state": "validating", "task_count": 1}
    facts |= {"run_state": "running", "gates_lost": 0, "gates_open": 0, "landing": False, "frozen": False}
    due = next_trigger.workstream({**facts, "approval": approval})
    assert due == (next_trigger.NextStep(trigger, reason) if trigger else None)
    assert next_trigger.workstream({**facts, "approval": approval, "gates_open": 1}) is None, "gates come first"


def test_a_task_that_waits_for_what_never_completes_is_cancelled() -> None:
    facts = {"state": "blocked", "unmet": 1, "workstream_state": "executing", "run_state": "running"}
    owed = next_trigger.task(facts | {"dead": 1})
    assert owed is not None
    assert owed.trigger == "cancel"
    assert ("cancel", "blocked") in TASK.moves
    assert next_trigger.task(facts | {"dead": 0}) is None
