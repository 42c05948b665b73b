"""A decision by people. Its outcome releases or refuses the trigger that was held for it.

pending → approved | rejected | expired; a vote below the quorum is a move, too, and leaves it pending.
"""

from interlock.workflows.definition import HOUR_SECONDS, Deadline, Definition, Effect, Field, Link, T
from interlock.workflows.fields import AUTHOR, name, names
from interlock.workflows.guards import may_decide, not_the_author, not_voted_yet, quorum_reached

APPROVAL = Definition(
    type="approval",
    version="1.0.0",
    summary="A decision that people take, under a quorum and a deadline.",
    order=(("pending",), ("approved", "rejected", "expired")),
    initial="pending",
    terminal=frozenset({"approved", "rejected", "expired"}),
    by="decider",
    transitions=(
        T(
            "approve",
            "pending",
            "approved",
            when=(may_decide, not_the_author, not_voted_yet, quorum_reached),
            settles="granted",
        ),
        T("approve", "pending", "pending", when=(may_decide, not_the_author, not_voted_yet)),
        T("reject", "pending", "rejected", when=(may_decide,), settles="refused", severity="warning"),
        T("expire", "pending", "expired", by="machinery", settles="refused", severity="warning"),
    ),
    deadlines={"pending": Deadline(72 * HOUR_SECONDS, "expire")},
    birth_effects=(Effect("notice"),),
    links=(Link("lands", type="workstream", context_key="lands", inverse="landing_approvals"),),
    fields=(
        Field("quorum", lambda value: type(value) is int and value >= 1, "a whole number, at least 1"),
        Field("deciders", names, "a list of names"),
        AUTHOR,
        Field("lands", name, "the UUID of the workstream that may land once this is approved"),
    ),
)
