"""How much may run at once, or start in a period, in a project (docs/spec/limit.md).

proposed → in_force → removed
proposed → removed

Its context is its terms, which never change: for other terms it is removed, and another takes its place.
"""

from interlock.workflows.definition import Field
from interlock.workflows.fields import name
from interlock.workflows.machines.governance.terms import terms
from interlock.workflows.machines.orchestration.fields import whole
from interlock.workflows.machines.orchestration.metadata_guards import reason_given

KINDS = ("project", "type", "tool", "key")
MOST = 10_000  # at once, and starts in a period
LONGEST_SECONDS = 86_400.0 * 7


def _number(value: object) -> bool:
    return isinstance(value, int) and whole(value) and 1 <= value <= MOST


def _period(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= LONGEST_SECONDS


LIMIT = terms(
    "limit",
    "How much may run at once, or start in a period.",
    Field("kind", lambda value: value in KINDS, ", ".join(KINDS), required=True),
    Field("name", name, "the name of the project, type, tool or key; `x*`: each that begins with x", required=True),
    Field("at_once", _number, f"a whole number from 1 to {MOST}"),
    Field("starts", _number, f"a whole number from 1 to {MOST}"),
    Field("per_seconds", _period, "a number of seconds, above 0 and at most 604800 (7 days)"),
    when=(reason_given,),
)
