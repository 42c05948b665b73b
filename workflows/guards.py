"""Guards shared by the shipped definitions. Each is named after its condition."""

from interlock.workflows import approvals
from interlock.workflows.definition import Guard
from interlock.workflows.guard_context import Case


def _quorum(case: Case) -> int:
    return int(case.context.get("quorum", 1))


pull_request_merged = Guard(
    "pull_request_merged",
    lambda case: (
        bool(case.linked.get("pull_request"))
        and all(pull_request.state == "merged" for pull_request in case.linked["pull_request"])
    ),
    "every pull request linked to the story must be merged, and there must be one",
    needs=frozenset({"linked"}),
)

not_the_author = Guard(
    "not_the_author",
    lambda case: case.by != case.context.get("author"),
    "authors may not approve their own work",
)

may_decide = Guard(
    "may_decide",
    lambda case: approvals.may_decide(case.context, case.by),
    "only the deciders this approval names may decide it",
)

not_voted_yet = Guard(
    "not_voted_yet",
    lambda case: case.by not in case.votes,
    "each decider has one vote",
    needs=frozenset({"votes"}),
)

quorum_reached = Guard(
    "quorum_reached",
    lambda case: sum(approvals.may_approve(case.context, who) for who in case.votes | {case.by}) >= _quorum(case),
    "the quorum is not reached yet",
    needs=frozenset({"votes"}),
)
