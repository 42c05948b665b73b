"""A sprint of one to two weeks. `start` and `complete` each wait for an approval (MACHINE-6).

planning → active → review → done
"""

from interlock.workflows.definition import ApprovalPoint, Definition, T

SPRINT = Definition(
    type="sprint",
    version="1.0.0",
    summary="A sprint, from planning to done.",
    order=(("planning",), ("active",), ("review",), ("done",)),
    initial="planning",
    terminal=frozenset({"done"}),
    resting=frozenset({"active"}),
    by="anyone",
    transitions=(
        T("start", "planning", "active", approval=ApprovalPoint()),
        T("finish", "active", "review"),
        T("complete", "review", "done", approval=ApprovalPoint()),
    ),
)
