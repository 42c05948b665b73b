"""Rolling a landed patch back, as machines have it: an operator has it begun, an effect does it, people are told."""

from interlock.workflows.definition import Effect, T, Transition
from interlock.workflows.machines.orchestration.metadata_guards import reason_given

NOTICE = Effect("notice")
ENDS = (
    T("roll_back_succeeded", "rolling_back", "rolled_back", effects=(NOTICE,), severity="critical"),
    T("roll_back_failed", "rolling_back", "failed", when=(reason_given,), effects=(NOTICE,), severity="error"),
)


def carried_out_by(name: str) -> Effect:
    """The effect that rolls back; one at a time in a run."""
    return Effect(name, failed="roll_back_failed", exclusive="run_id")


def ordered(trigger: str, effect: Effect) -> Transition:
    """How an operator has it begun."""
    return T(
        trigger,
        "proposed",
        "rolling_back",
        by="operator",
        when=(reason_given,),
        effects=(effect,),
        severity="warning",
    )
