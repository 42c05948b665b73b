"""A story, from analysis to done. Only `approve` waits for another machine: its pull request must be merged.

analysis → design → implementation ⇄ review → testing → done
                          ↑____________________|
every state but done → blocked → implementation
"""

from workflows.definition import Definition, Effect, T
from workflows.guards import pull_request_merged

STORY = Definition(
    type="story",
    version="1.0.0",
    summary="A story, from analysis to done (ADR-010).",
    states=("analysis", "design", "implementation", "review", "testing", "done", "blocked"),
    initial="analysis",
    terminal=frozenset({"done"}),
    order=(
        ("analysis",),
        ("design",),
        (
            "implementation",
            "blocked",
        ),
        ("review",),
        ("testing",),
        ("done",),
    ),
    transitions=(
        T("design_complete", "analysis", "design"),
        T("start_coding", "design", "implementation"),
        T("submit_pr", "implementation", "review"),
        T("request_changes", "review", "implementation", back="rework"),
        T("approve", "review", "testing", when=(pull_request_merged,)),
        T("tests_pass", "testing", "done"),
        T("tests_fail", "testing", "implementation", severity="warning", back="rework"),
        # Ruling 10: every state but `done` and `blocked`, listed; ADR-010's `*` would take in both.
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
