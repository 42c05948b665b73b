"""A sprint of one to two weeks. `start` and `complete` each wait for an approval (MACHINE-6).

planning → active → review → done

`complete` needs every story of the sprint to be done, or to have been moved out of it (SPRINT-3). Stories name their
sprint; a sprint does not list them.
"""

from interlock.workflows.definition import ApprovalPoint, Definition, T
from interlock.workflows.guards import stories_done

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
        T("complete", "review", "done", when=(stories_done,), approval=ApprovalPoint()),
    ),
)
