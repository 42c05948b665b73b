"""A phase of a project, which operators freeze and thaw (docs/spec/phase.md).

declared → open ⇄ frozen
declared → frozen

The first plan that declares it opens it, or begins it frozen. What a phase allows is in the plans. It never ends.
"""

from interlock.workflows.definition import Definition, T
from interlock.workflows.machines.orchestration.metadata_guards import reason_given

SAID = (reason_given,)

PHASE = Definition(
    type="phase",
    version="1.0.0",
    summary="A phase of a project: its workstreams go on, or are frozen.",
    order=(("declared",), ("open", "frozen")),
    initial="declared",
    terminal=frozenset(),
    resting=frozenset({"open", "frozen"}),
    by="operator",
    transitions=(
        T("open", "declared", "open", by="machinery"),
        T("begin_frozen", "declared", "frozen", by="machinery", when=SAID, severity="warning"),
        T("freeze", ("declared", "open"), "frozen", when=SAID, severity="warning"),
        T("thaw", ("declared", "frozen"), "open", when=SAID),
    ),
)
