"""Workstream 0.2.0: it cannot be blocked or skipped (LEGACY-6).

planned → ready → executing → validating → completed
executing, validating → failed      planned, ready, executing → cancelled
"""

from interlock.workflows.definition import Definition, T
from interlock.workflows.machines.orchestration.count_guards import critical_failure
from interlock.workflows.machines.orchestration.fields import TASK_COUNT
from interlock.workflows.machines.orchestration.link_guards import task_started, tasks_all_completed, tasks_all_created

WORKSTREAM_0_2 = Definition(
    type="workstream",
    version="0.2.0",
    summary="A workstream without dependencies.",
    order=(("planned",), ("ready",), ("executing",), ("validating",), ("completed", "failed", "cancelled")),
    initial="planned",
    terminal=frozenset({"completed", "failed", "cancelled"}),
    by="anyone",
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
