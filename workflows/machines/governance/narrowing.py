"""A project leaves a trigger to fewer than its definition does (docs/spec/narrowing.md).

proposed → in_force → lifted
proposed → lifted

Its context is its terms, which never change. PostgreSQL refuses terms that widen a right, and judges each request by
those in force.
"""

from interlock.workflows.definition import AUTHORITIES, Definition, Field, T
from interlock.workflows.fields import name


def fewer(value: object) -> bool:
    """Whether the value is a list of authorities, each once, without `anyone`."""
    return (
        isinstance(value, list)
        and bool(value)
        and len(value) == len(set(map(str, value)))
        and all(each in AUTHORITIES and each != "anyone" for each in value)
    )


NARROWING = Definition(
    type="narrowing",
    version="1.0.0",
    summary="What a project leaves to fewer than a definition does.",
    order=(("proposed",), ("in_force",), ("lifted",)),
    initial="proposed",
    terminal=frozenset({"lifted"}),
    resting=frozenset({"in_force"}),
    by="operator",
    transitions=(
        T("enforce", "proposed", "in_force", severity="warning"),
        T("lift", ("proposed", "in_force"), "lifted", severity="warning"),
    ),
    fields=(
        Field("type", name, "a workflow type", required=True),
        Field("trigger", name, "one of its triggers", required=True),
        Field("to", fewer, "a list of authorities without `anyone`", required=True),
    ),
    required_metadata=("terms",),
)
