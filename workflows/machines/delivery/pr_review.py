"""The review of a pull request. `merge` waits for an approval; the merge fires `approve` on the linked story.

submitted → reviewing ⇄ changes_requested
                ⇅
            approved → merged
"""

from interlock.workflows.definition import ApprovalPoint, Definition, Field, FollowUp, Link, T
from interlock.workflows.fields import AUTHOR, name
from interlock.workflows.guards import not_the_author

PR_REVIEW = Definition(
    type="pr_review",
    version="1.0.0",
    summary="The review of a pull request, from submitted to merged.",
    order=(("submitted",), ("reviewing", "changes_requested"), ("approved",), ("merged",)),
    initial="submitted",
    terminal=frozenset({"merged"}),
    by="anyone",
    transitions=(
        T("start_review", "submitted", "reviewing"),
        T("request_changes", "reviewing", "changes_requested"),
        T("resubmit", "changes_requested", "reviewing"),
        T("approve", "reviewing", "approved", when=(not_the_author,)),
        T("merge", "approved", "merged", approval=ApprovalPoint(), then=(FollowUp("story", "approve"),)),
        T("dismiss", "approved", "reviewing", severity="warning", back="rework"),  # new commits arrived
    ),
    links=(Link("story", type="story", context_key="story_id", inverse="pull_request"),),
    fields=(AUTHOR, Field("story_id", name, "the entity id or UUID of a story")),
)
