"""A workstream: the tasks of a run that belong together and land together (SSOT 1.3).

planned → ready → executing → validating → completed
planned → blocked → ready           executing, validating → failed
planned, ready → skipped            planned, ready, executing → cancelled
1.1.0: executing ⇄ paused; blocked → skipped; every state that is not terminal → cancelled

Triggers are those of seed 001; `dependency_check_failed` and `dependency_satisfied` are called as the task's are, and
`skip`, `pause`, `resume` are ours. In 1.1.0 `user_cancelled` is a person's and `cancel` the system's: a dependency that
can never complete, a run that ended. `workflows.orchestration.derive` tells which of them a workstream is owed.
"""

from dataclasses import replace

from workflows.definition import Definition, Effect, Field, Link, T
from workflows.fields import name
from workflows.orchestration.failures import workstream_critical, workstream_lost
from workflows.orchestration.fields import DEPENDS_ON, IS_CRITICAL, NAME_SAYS, RETRY_OF, at_least
from workflows.orchestration.guards import (
    dependencies_completed,
    dependency_missing,
    gates_passed,
    patches_verified,
    task_started,
    tasks_all_completed,
    tasks_all_created,
)

ARCHIVE = Effect("archive_workstream", exclusive="id")  # SSOT 1.3.7, invariant 4
UNENDED = ("planned", "ready", "blocked", "executing", "validating", "paused")

WORKSTREAM_1_0 = Definition(
    type="workstream",
    version="1.0.0",
    summary="A workstream, from planned to merged (SSOT 1.3).",
    states=(
        "planned",
        "ready",
        "blocked",
        "executing",
        "validating",
        "completed",
        "failed",
        "cancelled",
        "skipped",
    ),
    initial="planned",
    terminal=frozenset({"completed", "failed", "cancelled", "skipped"}),
    transitions=(
        T("all_tasks_created", "planned", "ready", when=(tasks_all_created, dependencies_completed)),
        T("dependency_check_failed", "planned", "blocked", when=(dependency_missing,)),
        T("dependency_satisfied", "blocked", "ready", when=(dependencies_completed,)),
        T("first_task_started", "ready", "executing", when=(task_started,)),
        T("all_tasks_completed", "executing", "validating", when=(tasks_all_completed, patches_verified)),
        T(
            "critical_task_failed",
            "executing",
            "failed",
            when=(workstream_critical,),
            effects=(ARCHIVE,),
            severity="critical",
        ),
        T("validation_passed", "validating", "completed", when=(gates_passed, patches_verified)),
        T("validation_failed", "validating", "failed", effects=(ARCHIVE,), severity="error"),
        T("skip", ("planned", "ready"), "skipped", severity="warning"),
        T("user_cancelled", ("planned", "ready", "executing"), "cancelled", severity="warning"),
    ),
    links=(
        Link("depends_on", type="workstream", context_key="depends_on", inverse="dependents"),
        Link("gates", type="test_gate", context_key="gates", inverse="judges"),
        Link("retry_of", type="workstream", context_key="retry_of", inverse="retried_by"),
    ),
    fields=(
        Field("run_id", name, "the name of its run", required=True),
        Field("phase_id", name, NAME_SAYS),
        IS_CRITICAL,
        Field("task_count", lambda value: at_least(0, value), "how many tasks it is to have, a whole number"),
        DEPENDS_ON,
        RETRY_OF,
    ),
    required_metadata=("total_tasks", "completed_tasks", "failed_tasks", "duration_seconds", "critical_failure"),
)

WORKSTREAM_1_1 = replace(
    WORKSTREAM_1_0,
    version="1.1.0",
    summary="A workstream, from planned to merged, that can be paused (SSOT 1.3, 9.2, rulings 4 and 5).",
    states=(*WORKSTREAM_1_0.states, "paused"),
    transitions=(
        *(
            replace(move, when=(workstream_lost,)) if move.trigger == "critical_task_failed" else move
            for move in WORKSTREAM_1_0.transitions
        ),
        T("pause", "executing", "paused", severity="warning"),
        T("resume", "paused", "executing", severity="warning"),
        T("skip", "blocked", "skipped", severity="warning"),
        T("user_cancelled", ("blocked", "validating", "paused"), "cancelled", severity="warning"),
        T("cancel", UNENDED, "cancelled", severity="warning"),
    ),
)
