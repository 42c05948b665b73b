"""The oldest workstream. A failed one can be retried (LEGACY-2).

S_PENDING → S_RUNNING → S_SUCCESS | S_FAILED | S_ABANDONED
S_FAILED → S_RETRYING → S_RUNNING      S_FAILED → S_ABANDONED

When its retries are used up, `max_retries_exceeded` ends it.
"""

from interlock.workflows.definition import Deadline, Definition, T
from interlock.workflows.machines.legacy.guards import step_failed, steps_succeeded
from interlock.workflows.machines.orchestration.fields import MAX_RETRIES
from interlock.workflows.machines.orchestration.link_guards import retries_left, retries_used_up
from interlock.workflows.machines.orchestration.task import BACKOFF, BACKOFF_SECONDS

WORKSTREAM_0_1 = Definition(
    type="workstream",
    version="0.1.0",
    summary="The oldest workstream, of steps.",
    order=(("S_PENDING",), ("S_RUNNING", "S_RETRYING"), ("S_FAILED",), ("S_SUCCESS", "S_ABANDONED")),
    initial="S_PENDING",
    terminal=frozenset({"S_SUCCESS", "S_ABANDONED"}),
    by="anyone",
    transitions=(
        T("start_execution", "S_PENDING", "S_RUNNING"),
        T("all_steps_succeed", "S_RUNNING", "S_SUCCESS", when=(steps_succeeded,)),
        T("step_fails", "S_RUNNING", "S_FAILED", when=(step_failed,), severity="error"),
        T("abandon", "S_RUNNING", "S_ABANDONED", severity="warning"),
        T("retry_eligible", "S_FAILED", "S_RETRYING", when=(retries_left,), severity="warning", back="retry"),
        T("max_retries_exceeded", "S_FAILED", "S_ABANDONED", when=(retries_used_up,), severity="error"),
        T("retry_attempt", "S_RETRYING", "S_RUNNING"),
    ),
    deadlines={"S_RETRYING": Deadline(BACKOFF_SECONDS, "retry_attempt", growth=BACKOFF)},
    fields=(MAX_RETRIES,),
)
