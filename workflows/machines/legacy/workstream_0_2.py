"""The workstream before it could be blocked or skipped (seed 001).

planned → ready → executing → validating → completed
executing, validating → failed      planned, ready, executing → cancelled
"""

from workflows.definition import Definition, T
from workflows.orchestration.failures import critical_failure
from workflows.orchestration.fields import TASK_COUNT
from workflows.orchestration.guards import task_started, tasks_all_completed, tasks_all_created

WORKSTREAM_0_2 = Definition(
    type="workstream",
    version="0.2.0",
    summary="A workstream without dependencies (seed 001).",
    states=("planned", "ready", "executing", "validating", "completed", "failed", "cancelled"),
    initial="planned",
    terminal=frozenset({"completed", "failed", "cancelled"}),
    order=(
        ("planned",),
        ("ready",),
        ("executing",),
        ("validating",),
        (
            "completed",
            "failed",
            "cancelled",
        ),
    ),
    transitions=(
        T("all_tasks_created", "planned", "ready", when=(tasks_all_created,)),
        T("first_task_started", "ready", "executing", when=(task_started,)),
        T("all_tasks_completed", "executing", "validating", when=(tasks_all_completed,)),
        T("critical_task_failed", "executing", "failed", when=(critical_failure,), severity="critical"),
        T("validation_passed", "validating", "completed"),
        T("validation_failed", "validating", "failed", severity="error"),
        T("user_cancelled", ("planned", "ready", "executing"), "cancelled", severity="warning"),
    ),
    fields=(TASK_COUNT,),
)
