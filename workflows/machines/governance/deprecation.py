"""A part of a definition that is not to be used any more, from announcement to removal (docs/spec/governance.md).

proposed → announced → undone
announced ⇄ removal_proposed → removed

Operators decide; Interlock itself announces what is marked in the code. One operator proposes a removal, another
approves it, which PostgreSQL judges.
"""

from interlock.workflows.definition import Definition, Field, T
from interlock.workflows.fields import name, words
from interlock.workflows.machines.governance.operator_grant import NOTICE, instant
from interlock.workflows.machines.orchestration.metadata_guards import reason_given

SAID = (reason_given,)
KINDS = ("version", "state", "trigger")

DEPRECATION = Definition(
    type="deprecation",
    version="1.0.0",
    summary="A version, state or trigger that is not to be used any more.",
    order=(("proposed",), ("announced",), ("removal_proposed",), ("undone", "removed")),
    initial="proposed",
    terminal=frozenset({"undone", "removed"}),
    resting=frozenset({"announced", "removal_proposed"}),
    by="operator",
    transitions=(
        T("announce", "proposed", "announced", by=("operator", "machinery"), when=SAID, effects=(NOTICE,)),
        T("undo", "announced", "undone", when=SAID, effects=(NOTICE,), severity="warning"),
        T("propose_removal", "announced", "removal_proposed", when=SAID, effects=(NOTICE,)),
        T(
            "withdraw_removal",
            "removal_proposed",
            "announced",
            when=SAID,
            effects=(NOTICE,),
            back="rework",
            severity="warning",
        ),
        T("approve_removal", "removal_proposed", "removed", when=SAID, effects=(NOTICE,)),
    ),
    fields=(
        Field("type", name, "the name of a workflow type", required=True),
        Field("version", name, "one of its versions", required=True),
        Field("kind", lambda value: value in KINDS, "version, state or trigger", required=True),
        Field("name", name, "the name of a state or trigger"),
        Field("guide", words, "what to do instead"),
        Field("remove_after", instant, "an instant with a time zone"),
    ),
    required_metadata=("terms",),
)
