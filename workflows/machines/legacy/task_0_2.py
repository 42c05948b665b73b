"""Task 0.2.0: it cannot be blocked, and has no time limit (LEGACY-5).

pending → queued → running → validating → completed
            ↑_ retrying ←_|        |
          running, validating → failed      running → cancelled
"""

from interlock.workflows.definition import Deadline, Definition, Link, T
from interlock.workflows.machines.orchestration.fields import (
    IS_CRITICAL,
    MAX_RETRIES,
    NAMED_BEFORE,
    REQUIRED_CAPABILITIES,
    WORKSTREAM_BEFORE,
    depends_on,
)
from interlock.workflows.machines.orchestration.link_guards import dependencies_completed, retries_left, retries_used_up
from interlock.workflows.machines.orchestration.metadata_guards import exit_code_zero, worker_capable, worker_named
from interlock.workflows.machines.orchestration.task import BACKOFF, BACKOFF_SECONDS

TASK_0_2 = Definition(
    type="task",
    version="0.2.0",
    summary="A task that is never blocked.",
    order=(("pending",), ("queued",), ("running", "retrying"), ("validating",), ("completed", "failed", "cancelled")),
    initial="pending",
    terminal=frozenset({"completed", "failed", "cancelled"}),
    by="anyone",
    transitions=(
        T("scheduler_assigned", "pending", "queued", when=(dependencies_completed,)),
        T("worker_started", "queued", "running", when=(worker_named, worker_capable)),
        T("execution_completed", "running", "validating", when=(exit_code_zero,)),
        T("execution_failed", "running", "retrying", when=(retries_left,), severity="warning"),
        T("execution_failed", "running", "failed", when=(retries_used_up,), severity="error"),
        T("user_cancelled", "running", "cancelled", severity="warning"),
        T("retry_delay_elapsed", "retrying", "queued", back="retry"),
        T("validation_passed", "validating", "completed"),
        T("validation_failed", "validating", "failed", severity="error"),
    ),
    deadlines={"retrying": Deadline(BACKOFF_SECONDS, "retry_delay_elapsed", growth=BACKOFF)},
    links=(
        Link("workstream", type="workstream", context_key="workstream_id", inverse="tasks"),
        depends_on("task"),
    ),
    fields=(WORKSTREAM_BEFORE, IS_CRITICAL, NAMED_BEFORE, MAX_RETRIES, REQUIRED_CAPABILITIES),
)
