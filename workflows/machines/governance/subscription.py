"""Events that are delivered to others (docs/spec/subscription.md).

proposed → active ⇄ paused
proposed, active, paused → removed

Its context is its terms, which never change: for other terms it is removed, and another takes its place.
"""

from interlock.workflows.definition import Definition, Field, T
from interlock.workflows.machines.orchestration.metadata_guards import reason_given
from interlock.workflows.subscription_terms import NAMED, are_names, are_secrets, is_url

SAID = (reason_given,)
IN_FORCE = ("active", "paused")

SUBSCRIPTION = Definition(
    type="subscription",
    version="1.0.0",
    summary="Events that are delivered to an endpoint outside.",
    order=(("proposed",), IN_FORCE, ("removed",)),
    initial="proposed",
    terminal=frozenset({"removed"}),
    resting=frozenset(IN_FORCE),
    by="operator",
    transitions=(
        T("activate", "proposed", "active", when=SAID, severity="warning"),
        T("pause", "active", "paused", when=SAID, severity="warning"),
        T("resume", "paused", "active", when=SAID, severity="warning"),
        *(T(each, state, state, when=SAID, severity="warning") for each in ("replay", "skip") for state in IN_FORCE),
        T("remove", ("proposed", *IN_FORCE), "removed", when=SAID, severity="warning"),
    ),
    fields=(
        Field("url", is_url, "https://… or http://…, with a host, without a user or password", required=True),
        Field("secrets", are_secrets, "a list of env:NAME, file:PATH or command:NAME, at least one", required=True),
        *(Field(each, are_names, f"a list of names of {each}, each once, at most 100") for each in NAMED),
        Field("every_project", lambda value: isinstance(value, bool), "true or false"),
    ),
    required_metadata=("terms",),
)
