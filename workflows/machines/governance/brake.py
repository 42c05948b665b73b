"""What holds an actor, a run, a project or an instance until an operator releases it (docs/spec/brake.md).

reached → on → released
reached → released

It holds from its birth. PostgreSQL puts it on in the commit that uses a budget up, and `announce` tells people. Its
context says why, with the figures, and never changes.
"""

from interlock.workflows.definition import Definition, Effect, Field, T
from interlock.workflows.fields import name
from interlock.workflows.machines.governance.budget import KINDS, RESOURCES, amount, period
from interlock.workflows.machines.orchestration.metadata_guards import reason_given

HELD = (*KINDS, "instance")


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


BRAKE = Definition(
    type="brake",
    version="1.0.0",
    summary="What holds a runaway actor, run, project or instance until an operator releases it.",
    order=(("reached",), ("on",), ("released",)),
    initial="reached",
    terminal=frozenset({"released"}),
    by="operator",
    transitions=(
        T("announce", "reached", "on", by="machinery", effects=(Effect("notice"),), severity="error"),
        T("release", ("reached", "on"), "released", when=(reason_given,), severity="warning"),
    ),
    fields=(
        Field("kind", lambda value: value in HELD, ", ".join(HELD), required=True),
        Field("name", name, "of the actor or project, or the UUID of the run or instance", required=True),
        Field("reason", lambda value: isinstance(value, str) and value != "", "why it is on", required=True),
        Field("budget", name, "the UUID of the budget that was used up"),
        Field("resource", lambda value: value in RESOURCES, ", ".join(RESOURCES)),
        Field("used", amount, "how much of the resource was used"),
        Field("most", amount, "the budget, or how many times an instance may move so"),
        Field("per_seconds", period, "a number of seconds"),
        Field("as_of", name, "when the figures were taken, in microseconds since 1970"),
        Field("from", name, "the state from which an instance goes back and forth"),
        Field("to", name, "the state to which it does"),
        Field("times", _whole, "how many times it did"),
    ),
    required_metadata=("terms",),
)
