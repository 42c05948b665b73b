"""A circuit breaker: refuses calls to a tool that keeps failing for a while (docs/spec/breaker.md). It never ends.

CLOSED → OPEN → HALF_OPEN → CLOSED | OPEN

The callers of the tool count failures and successes, and fire `failure_threshold_exceeded` or `success` at the
threshold. The deadline of OPEN fires `cooldown_expires`; an operator who resets the breaker fires it earlier.
"""

from interlock.workflows.definition import Deadline, Definition, Field, T
from interlock.workflows.fields import name
from interlock.workflows.machines.orchestration.fields import at_least, positive

COOLDOWN_SECONDS = 60.0  # BREAKER-7

CIRCUIT_BREAKER = Definition(
    type="circuit_breaker",
    version="1.0.0",
    summary="A circuit breaker of one tool.",
    order=(("CLOSED", "OPEN", "HALF_OPEN"),),
    initial="CLOSED",
    terminal=frozenset(),
    resting=frozenset({"CLOSED", "HALF_OPEN"}),  # `stuck` finds those that somebody wants to call
    by="machinery",
    events={"OPEN": "circuit_breaker_opened"},
    transitions=(
        T("failure_threshold_exceeded", "CLOSED", "OPEN", severity="error"),
        T("cooldown_expires", "OPEN", "HALF_OPEN", by=("machinery", "operator")),
        T("success", "HALF_OPEN", "CLOSED", severity="warning"),
        T("failure", "HALF_OPEN", "OPEN", severity="error"),
    ),
    deadlines={"OPEN": Deadline(COOLDOWN_SECONDS, "cooldown_expires", context_key="cooldown_seconds")},
    fields=(
        Field("tool_id", name, "the name of a tool", required=True),
        Field("failure_threshold", lambda value: at_least(1, value), "a whole number, at least 1"),
        Field("cooldown_seconds", positive, "a number of seconds above 0"),
        Field("success_threshold", lambda value: at_least(1, value), "a whole number, at least 1"),
    ),
)
