"""Guards of the older machines on linked instances."""

from interlock.workflows.definition import Guard
from interlock.workflows.guard_context import Case
from interlock.workflows.machines.orchestration.link_guards import LINKED


def _succeeded(case: Case, role: str) -> bool:
    return all(step.state == "S_SUCCESS" for step in case.linked.get(role, ()))


steps_succeeded = Guard(
    "steps_succeeded",
    lambda case: _succeeded(case, "steps"),
    "every one of its steps must be in S_SUCCESS",
    needs=LINKED,
)

step_failed = Guard(
    "step_failed",
    lambda case: any(step.state == "S_FAILED" for step in case.linked.get("steps", ())),
    "none of its steps is in S_FAILED",
    needs=LINKED,
)

steps_before_succeeded = Guard(
    "steps_before_succeeded",
    lambda case: _succeeded(case, "depends_on"),
    "every step it depends on must be in S_SUCCESS",
    needs=LINKED,
)
