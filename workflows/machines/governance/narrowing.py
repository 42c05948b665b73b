"""A project's restriction of who may fire a trigger, beyond what its definition allows (docs/spec/narrowing.md).

proposed → in_force → lifted
proposed → lifted

Its context is its terms, which never change. PostgreSQL refuses terms that widen a right, and judges each request by
those in force.
"""

from interlock.workflows.definition import AUTHORITIES, Field
from interlock.workflows.fields import name
from interlock.workflows.machines.governance.terms import terms

FEWER = tuple(each for each in AUTHORITIES if each != "anyone")


def fewer(value: object) -> bool:
    """Whether the value is a list of authorities, each once, without `anyone`."""
    return (
        isinstance(value, list)
        and bool(value)
        and len(value) == len(set(map(str, value)))
        and all(each in FEWER for each in value)
    )


NARROWING = terms(
    "narrowing",
    "A project's restriction of who may fire a trigger.",
    Field("type", name, "a workflow type", required=True),
    Field("trigger", name, "one of its triggers", required=True),
    Field("to", fewer, f"a list of authorities, each once: {', '.join(FEWER)}", required=True),
    away="lift",
    over="lifted",
)
