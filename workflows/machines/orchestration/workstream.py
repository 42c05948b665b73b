"""A workstream: tasks of a run that belong together and land together (docs/spec/workstream.md).

planned → ready → executing → validating → completed
planned → blocked → ready           executing, validating → failed
planned, ready → skipped            planned, ready, executing → cancelled
1.1.0: executing ⇄ paused; blocked → skipped; every non-terminal state → cancelled

`dependency_check_failed` and `dependency_satisfied` have the same names as the task's triggers. In 1.1.0 a person
fires `user_cancelled`; the system fires `cancel`, if a dependency can never complete or the run has ended.
`patch_set_aside` (WORKSTREAM-9) and `tasks_lost` (1.1.0, WORKSTREAM-10) fail a workstream without a critical failure.
`workflows.scheduling.counts` decides which of these triggers to fire. The remains of a cancelled workstream are
archived like those of a failed one, unless it cannot have begun.
"""

from dataclasses import replace

from interlock.workflows.definition import Authority, Definition, Effect, Field, Guard, Link, Severity, T, Transition
from interlock.workflows.fields import name
from interlock.workflows.machines.orchestration.count_guards import critical_failure, patch_lost, tasks_ended_short
from interlock.workflows.machines.orchestration.fields import (
    DEPENDS_ON,
    IS_CRITICAL,
    NAME_SAYS,
    RETRY_OF,
    RUN_ID,
    TASK_COUNT,
    depends_on,
    retry_of,
)
from interlock.workflows.machines.orchestration.link_guards import (
    dependencies_completed,
    dependency_missing,
    gates_passed,
    landing_approved,
    patches_verified,
    phase_open,
    task_started,
    tasks_all_completed,
    tasks_all_created,
)

ARCHIVE = Effect("archive_workstream", exclusive="id")  # WORKSTREAM-4
UNBEGUN = ("planned", "blocked")
BEGUN = ("ready", "executing", "validating", "paused")  # from `ready` on, gates may run in its worktree


def fails(
    trigger: str,
    source: str,
    *when: Guard,
    severity: Severity = "error",
    by: tuple[Authority, ...] = (),
    event: str = "",
) -> Transition:
    """A move into `failed`, after which its remains are archived."""
    return T(trigger, source, "failed", by=by, when=when, effects=(ARCHIVE,), severity=severity, event=event)


WORKSTREAM_1_0 = Definition(
    type="workstream",
    version="1.0.0",
    summary="A workstream, from planned to merged.",
    order=(
        ("planned", "blocked"),
        ("ready",),
        ("executing",),
        ("validating",),
        ("completed", "failed", "cancelled", "skipped"),
    ),
    initial="planned",
    terminal=frozenset({"completed", "failed", "cancelled", "skipped"}),
    by="machinery",
    transitions=(
        T("all_tasks_created", "planned", "ready", when=(tasks_all_created, dependencies_completed)),
        T("dependency_check_failed", "planned", "blocked", when=(dependency_missing,)),
        T("dependency_satisfied", "blocked", "ready", when=(dependencies_completed,)),
        T("first_task_started", "ready", "executing", when=(task_started,)),
        T("all_tasks_completed", "executing", "validating", when=(tasks_all_completed, patches_verified)),
        fails("critical_task_failed", "executing", critical_failure, severity="critical"),
        fails("patch_set_aside", "executing", patch_lost, event="workstream_failed_quarantine"),
        T("validation_passed", "validating", "completed", by="effect", when=(gates_passed, patches_verified)),
        fails("validation_failed", "validating", by=("effect", "machinery")),
        T("skip", ("planned", "ready"), "skipped", by="anyone", severity="warning"),
        T("user_cancelled", ("planned", "ready", "executing"), "cancelled", by="anyone", severity="warning"),
    ),
    links=(
        depends_on("workstream"),
        Link("gates", type="test_gate", context_key="gates", inverse="judges"),
        retry_of("workstream"),
    ),
    fields=(
        RUN_ID,
        Field("phase_id", name, NAME_SAYS),
        IS_CRITICAL,
        TASK_COUNT,
        DEPENDS_ON,
        RETRY_OF,
    ),
    required_metadata=("total_tasks", "completed_tasks", "failed_tasks", "duration_seconds", "critical_failure"),
)

WORKSTREAM_1_1 = replace(
    WORKSTREAM_1_0,
    version="1.1.0",
    summary="A workstream, from planned to merged, that can be paused.",
    states=(),  # those of the order
    order=(
        ("planned", "blocked"),
        ("ready",),
        ("executing", "paused"),
        ("validating",),
        ("completed", "failed", "cancelled", "skipped"),
    ),
    transitions=(
        *(
            replace(move, when=(*move.when, phase_open, landing_approved))
            if move.trigger == "validation_passed"
            else move
            for move in WORKSTREAM_1_0.transitions
            if move.trigger not in ("skip", "user_cancelled")
        ),
        fails("critical_task_failed", "paused", critical_failure, severity="critical"),
        fails("tasks_lost", "executing", tasks_ended_short),
        T("pause", "executing", "paused", by="anyone", severity="warning"),
        T("resume", "paused", "executing", by="anyone", severity="warning"),
        T("skip", UNBEGUN, "skipped", by="anyone", severity="warning"),
        T("skip", "ready", "skipped", by="anyone", effects=(ARCHIVE,), severity="warning"),
        T("user_cancelled", UNBEGUN, "cancelled", by="anyone", severity="warning"),
        T("user_cancelled", BEGUN, "cancelled", by="anyone", effects=(ARCHIVE,), severity="warning"),
        T("cancel", UNBEGUN, "cancelled", severity="warning"),
        T("cancel", BEGUN, "cancelled", effects=(ARCHIVE,), severity="warning"),
    ),
)
