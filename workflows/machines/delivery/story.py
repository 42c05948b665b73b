"""A story, from analysis to done. Only `approve` depends on another machine: the pull request must be merged.

analysis → design → implementation ⇄ review → testing → done
                          ↑____________________|
every state but done → blocked → implementation

`move_to_sprint` and `leave_sprint` change the sprint that the story belongs to, and not its state (STORY-6).
"""

from interlock.workflows.definition import Definition, Effect, Field, Link, Relink, T
from interlock.workflows.fields import name
from interlock.workflows.guards import another_sprint, in_a_sprint, pull_request_merged, sprint_open
from interlock.workflows.machines.orchestration.metadata_guards import reason_given

UNFINISHED = ("analysis", "design", "implementation", "review", "testing", "blocked")

STORY = Definition(
    type="story",
    version="1.0.0",
    summary="A story, from analysis to done.",
    order=(("analysis",), ("design",), ("implementation", "blocked"), ("review",), ("testing",), ("done",)),
    initial="analysis",
    terminal=frozenset({"done"}),
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
        *(
            T(
                "move_to_sprint",
                state,
                state,
                when=(sprint_open, another_sprint, reason_given),
                relink=Relink("sprint", data_key="sprint_id"),
            )
            for state in UNFINISHED
        ),
        *(
            T(
                "leave_sprint",
                state,
                state,
                when=(in_a_sprint, reason_given),
                severity="warning",
                relink=Relink("sprint"),
            )
            for state in UNFINISHED
        ),
        T("unblock", "blocked", "implementation"),
    ),
    links=(Link("sprint", type="sprint", context_key="sprint_id", inverse="stories", open=True),),
    fields=(Field("sprint_id", name, "the entity id or UUID of a sprint"),),
)
