"""A story, from analysis to done. Only `approve` depends on another machine: the pull request must be merged.

analysis → design → implementation ⇄ review → testing → done
                          ↑____________________|
every state but done → blocked → implementation
"""

from interlock.workflows.definition import Definition, Effect, T
from interlock.workflows.guards import pull_request_merged

STORY = Definition(
    type="story",
    version="1.0.0",
    summary="A story, from analysis to done.",
    initial="analysis",
    terminal=frozenset({"done"}),
    order=(("analysis",), ("design",), ("implementation", "blocked"), ("review",), ("testing",), ("done",)),
    by="anyone",
    transitions=(
        T("design_complete", "analysis", "design"),
        T("start_coding", "design", "implementation"),
        T("submit_pr", "implementation", "review"),
        T("request_changes", "review", "implementation", back="rework"),
        T("approve", "review", "testing", by=("anyone", "machinery"), when=(pull_request_merged,)),
        T("tests_pass", "testing", "done"),
        T("tests_fail", "testing", "implementation", severity="warning", back="rework"),
        # STORY-1: every state but `done` and `blocked`; `*` would include both.
        T(
            "block",
            ("analysis", "design", "implementation", "review", "testing"),
            "blocked",
            effects=(Effect("notice"),),
            severity="warning",
            back="blocked",
        ),
        T("unblock", "blocked", "implementation"),
    ),
)
