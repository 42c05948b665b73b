"""A step, the predecessor of the task. A failed step can be retried (LEGACY-2).

S_PENDING → S_RUNNING → S_SUCCESS | S_FAILED
S_FAILED → S_RETRYING → S_RUNNING

Only success is final. A failed step waits for a retry; until then it blocks the
steps that depend on it.
"""

from interlock.workflows.definition import Deadline, Definition, Link, T
from interlock.workflows.machines.legacy.guards import steps_before_succeeded
from interlock.workflows.machines.orchestration.fields import (
    EXIT_CODES,
    MAX_RETRIES,
    NAMED_BEFORE,
    WORKSTREAM_BEFORE,
    depends_on,
)
from interlock.workflows.machines.orchestration.link_guards import retries_left
from interlock.workflows.machines.orchestration.metadata_guards import exit_code_expected, exit_code_unexpected
from interlock.workflows.machines.orchestration.task import BACKOFF, BACKOFF_SECONDS

STEP_0_1 = Definition(
    type="step",
    version="0.1.0",
    summary="A step of the oldest workstream.",
    order=(("S_PENDING",), ("S_RUNNING", "S_RETRYING"), ("S_FAILED",), ("S_SUCCESS",)),
    initial="S_PENDING",
    terminal=frozenset({"S_SUCCESS"}),
    by="anyone",
    transitions=(
        T("dependencies_met", "S_PENDING", "S_RUNNING", when=(steps_before_succeeded,)),
        T("success", "S_RUNNING", "S_SUCCESS", when=(exit_code_expected,)),
        T("failure", "S_RUNNING", "S_FAILED", when=(exit_code_unexpected,), severity="error"),
        T("retry_eligible", "S_FAILED", "S_RETRYING", when=(retries_left,), severity="warning", back="retry"),
        T("retry_attempt", "S_RETRYING", "S_RUNNING"),
    ),
    deadlines={"S_RETRYING": Deadline(BACKOFF_SECONDS, "retry_attempt", growth=BACKOFF)},
    links=(
        Link("workstream", type="workstream", context_key="workstream_id", inverse="steps"),
        depends_on("step"),
    ),
    fields=(WORKSTREAM_BEFORE, NAMED_BEFORE, EXIT_CODES, MAX_RETRIES),
)
