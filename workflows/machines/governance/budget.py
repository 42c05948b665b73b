"""How much an actor, a run or a project may use before a brake is put on (docs/spec/brake.md).

proposed → in_force → removed
proposed → removed

Its context is its terms, which never change: for other terms it is removed, and another takes its place.
"""

from interlock.workflows.definition import Field
from interlock.workflows.fields import name
from interlock.workflows.machines.governance.terms import terms
from interlock.workflows.machines.orchestration.metadata_guards import reason_given

KINDS = ("actor", "run", "project")
WHOLE, PARTS = ("triggers", "claims", "tokens"), ("usd",)
RESOURCES = (*WHOLE, *PARTS)
MOST = 10**12
SHORTEST_SECONDS, LONGEST_SECONDS = 1.0, 86_400.0 * 366


def amount(value: object) -> bool:
    """Whether it is a number above 0 and at most a million million."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= MOST


def period(value: object) -> bool:
    """Whether it is a number of seconds, from a second to a year."""
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and SHORTEST_SECONDS <= value <= LONGEST_SECONDS
    )


BUDGET = terms(
    "budget",
    "How much an actor, a run or a project may use before a brake is put on.",
    Field("kind", lambda value: value in KINDS, ", ".join(KINDS), required=True),
    Field("name", name, "of the actor or project, or a run's UUID; `x*`: each that begins with x", required=True),
    Field("resource", lambda value: value in RESOURCES, ", ".join(RESOURCES), required=True),
    Field("most", amount, f"a number above 0 and at most {MOST}", required=True),
    Field("per_seconds", period, "a number of seconds, from 1 to 31622400 (366 days)"),
    when=(reason_given,),
)
