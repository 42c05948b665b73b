"""A person's right to act as an operator, from its grant to its end (docs/spec/governance.md).

proposed → active → revoked | lapsed

Operators grant and revoke. Interlock itself grants only where nobody is an operator, which PostgreSQL judges, and ends
a grant at its `until`.
"""

from datetime import datetime

from interlock.workflows.definition import Definition, Effect, Field, T
from interlock.workflows.fields import name
from interlock.workflows.machines.orchestration.metadata_guards import reason_given

NOTICE = Effect("notice")


def instant(value: object) -> bool:
    """Whether the value is the text of an instant with a time zone (`2026-11-21T15:00:00+00:00`)."""
    try:
        return isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


OPERATOR_GRANT = Definition(
    type="operator_grant",
    version="1.0.0",
    summary="A person's right to act as an operator.",
    order=(("proposed",), ("active",), ("revoked", "lapsed")),
    initial="proposed",
    terminal=frozenset({"revoked", "lapsed"}),
    resting=frozenset({"active"}),
    transitions=(
        T("grant", "proposed", "active", by=("operator", "machinery"), when=(reason_given,), effects=(NOTICE,)),
        T("revoke", "active", "revoked", by="operator", when=(reason_given,), effects=(NOTICE,), severity="warning"),
        T("lapse", "active", "lapsed", by="machinery", effects=(NOTICE,)),
    ),
    fields=(
        Field("name", name, "the name of a person", required=True),
        Field("until", instant, "an instant with a time zone"),
    ),
    required_metadata=("terms",),
)
