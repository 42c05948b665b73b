"""A sprint of one to two weeks. Starting and completing it each wait for an approval (ADR-010, approval points).

planning → active → review → done
"""

from workflows.definition import ApprovalPoint, Definition, T

SPRINT = Definition(
    type="sprint",
    version="1.0.0",
    summary="A sprint, from planning to done (ADR-010).",
    states=("planning", "active", "review", "done"),
    initial="planning",
    terminal=frozenset({"done"}),
    order=(
        ("planning",),
        ("active",),
        ("review",),
        ("done",),
    ),
    transitions=(
        T("start", "planning", "active", approval=ApprovalPoint()),
        T("finish", "active", "review"),
        T("complete", "review", "done", approval=ApprovalPoint()),
    ),
)
