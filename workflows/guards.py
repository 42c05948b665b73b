"""Guards shared by the shipped definitions. Each is named after its condition."""

from interlock.workflows import approvals
from interlock.workflows.definition import Guard
from interlock.workflows.guard_context import Case, Linked


def _quorum(case: Case) -> int:
    return int(case.context.get("quorum", 1))


def _open_stories(case: Case) -> list[Linked]:
    return [story for story in case.linked.get("stories", ()) if story.state != "done"]


pull_request_merged = Guard(
    "pull_request_merged",
    lambda case: (
        bool(case.linked.get("pull_request"))
        and all(pull_request.state == "merged" for pull_request in case.linked["pull_request"])
    ),
    "every pull request linked to the story must be merged, and there must be one",
    needs=frozenset({"linked"}),
    missing=lambda case: [
        f"{each.entity_id} ({each.state})" for each in case.linked.get("pull_request", ()) if each.state != "merged"
    ],
)

stories_done = Guard(
    "stories_done",
    lambda case: not _open_stories(case),
    "every story of the sprint must be done, or be moved to another sprint or out of this one",
    needs=frozenset({"linked"}),
    missing=lambda case: [f"{story.entity_id} ({story.state})" for story in _open_stories(case)],
)

sprint_open = Guard(
    "sprint_open",
    lambda case: case.named is not None and case.named.state != "done",
    "metadata.sprint_id must name a sprint that is not done",
    needs=frozenset({"named"}),
)

another_sprint = Guard(
    "another_sprint",
    lambda case: case.named is None or all(each.id != case.named.id for each in case.linked.get("sprint", ())),
    "metadata.sprint_id must name another sprint than the one it is in",
    needs=frozenset({"linked", "named"}),
)

in_a_sprint = Guard(
    "in_a_sprint",
    lambda case: bool(case.linked.get("sprint")),
    "the story must be in a sprint",
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
