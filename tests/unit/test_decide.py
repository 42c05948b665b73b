"""Deciding: a value for every expected outcome, the same for the same case, and nothing changed by it."""

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from interlock.workflows.catalogue import catalogue
from interlock.workflows.decide import decide
from interlock.workflows.definition import ApprovalPoint, Deadline, Definition, Guard, T
from interlock.workflows.guard_context import Case, Linked, Override
from interlock.workflows.outcomes import Applied, Rejected, Superseded, Waiting
from interlock.workflows.versioning.shortest_path import route
from tests.small_machines import small_machine

STORY, PR_REVIEW, APPROVAL, SPRINT = (catalogue().get(type_) for type_ in ("story", "pr_review", "approval", "sprint"))
MERGED = Linked("pr_review", "PR-1", "merged")
OPEN = Linked("pr_review", "PR-2", "reviewing")


def case(state: str, trigger: str, **facts: Any) -> Case:
    return Case(**{"state": state, "version": 1, "context": {}, "trigger": trigger, "by": "agent"} | facts)


def guarded(*moves: Any, **rest: Any) -> Definition:
    return small_machine("door", "", "shut | ajar open", *moves, **rest)


def test_a_false_guard_is_a_refusal_with_its_name_its_words_and_what_is_legal() -> None:
    outcome = decide(STORY, case("review", "approve", linked={"pull_request": (OPEN,)}))
    assert isinstance(outcome, Rejected)
    assert outcome.reason == {
        "code": "guard",
        "message": "every pull request linked to the story must be merged, and there must be one: PR-2 (reviewing)",
        "state": "review",
        "missing": ["pull_request_merged"],
        "legal": ["request_changes", "approve", "block", "move_to_sprint", "leave_sprint"],
    }


@pytest.mark.parametrize(("count", "end"), [(1, "S-0 (review)"), (10, "S-9 (review)"), (12, "S-9 (review) and 2 more")])
def test_a_refusal_names_what_is_missing_and_not_too_much_of_it(count: int, end: str) -> None:
    stories = tuple(Linked("story", f"S-{number}", "review") for number in range(count))
    outcome = decide(SPRINT, case("review", "complete", linked={"stories": (*stories, Linked("story", "S", "done"))}))
    assert isinstance(outcome, Rejected)
    assert outcome.reason["message"].startswith("every story of the sprint must be done, or be moved")
    assert outcome.reason["message"].endswith(end)


@pytest.mark.parametrize(
    ("linked", "holds"),
    [
        ({}, False),
        ({"pull_request": ()}, False),
        ({"pull_request": (MERGED,)}, True),
        ({"pull_request": (MERGED, OPEN)}, False),
        ({"story": (MERGED,)}, False),
    ],
)
def test_a_story_is_approved_only_when_all_its_pull_requests_are_merged(linked: Any, holds: bool) -> None:
    assert isinstance(decide(STORY, case("review", "approve", linked=linked)), Applied if holds else Rejected)


@pytest.mark.parametrize(("definition", "state"), [(PR_REVIEW, "reviewing"), (APPROVAL, "pending")])
def test_authors_may_not_approve_their_own_work(definition: Definition, state: str) -> None:
    outcome = decide(definition, case(state, "approve", by="ann", context={"author": "ann"}))
    assert isinstance(outcome, Rejected)
    assert "not_the_author" in outcome.reason["missing"]
    assert isinstance(decide(definition, case(state, "approve", by="bob", context={"author": "ann"})), Applied)


def test_only_named_deciders_decide() -> None:
    named = {"deciders": ["ann"]}
    assert isinstance(decide(APPROVAL, case("pending", "approve", by="ann", context=named)), Applied)
    for trigger in ("approve", "reject"):
        outcome = decide(APPROVAL, case("pending", trigger, by="bob", context=named))
        assert isinstance(outcome, Rejected)
        assert outcome.reason["missing"] == ["may_decide"]


def test_every_false_guard_is_named_not_only_the_first() -> None:
    context = {"deciders": ["bob"], "author": "ann", "quorum": 1}
    outcome = decide(APPROVAL, case("pending", "approve", by="ann", context=context))
    assert isinstance(outcome, Rejected)
    assert outcome.reason["missing"] == ["may_decide", "not_the_author"]


def test_votes_below_the_quorum_leave_it_pending_and_the_last_one_decides() -> None:
    context = {"quorum": 3, "author": "ann"}
    for votes, dest in (((), "pending"), (("bob",), "pending"), (("bob", "cyd"), "approved")):
        outcome = decide(APPROVAL, case("pending", "approve", by="dan", context=context, votes=frozenset(votes)))
        assert isinstance(outcome, Applied)
        assert outcome.dest == dest


def test_nobody_votes_twice() -> None:
    outcome = decide(APPROVAL, case("pending", "approve", by="bob", context={"quorum": 2}, votes=frozenset({"bob"})))
    assert isinstance(outcome, Rejected)
    assert outcome.reason["missing"] == ["not_voted_yet"]


def test_what_is_named_is_missing_for_the_move_that_lacks_least() -> None:
    outcome = decide(APPROVAL, case("pending", "approve", by="ann", context={"quorum": 9, "author": "ann"}))
    assert isinstance(outcome, Rejected)
    assert outcome.reason["missing"] == ["not_the_author"]


def test_a_trigger_already_held_for_an_approval_is_refused_a_second_time() -> None:
    outcome = decide(PR_REVIEW, case("approved", "merge", held=True))
    assert isinstance(outcome, Rejected)
    assert outcome.reason["code"] == "already_held"


def test_a_granted_trigger_goes_on_whoever_else_is_held() -> None:
    outcome = decide(PR_REVIEW, case("approved", "merge", granted=True, votes=frozenset({"other"})))
    assert isinstance(outcome, Applied)


def test_a_grant_does_not_outlive_the_state_it_was_asked_in() -> None:
    outcome = decide(PR_REVIEW, case("reviewing", "merge", granted=True))
    assert isinstance(outcome, Rejected)
    assert outcome.reason["code"] == "no_such_transition"


def test_a_timer_holds_only_for_the_entry_it_was_armed_in() -> None:
    armed = case("pending", "expire", version=4, bound_version=4)
    assert isinstance(decide(APPROVAL, armed), Applied)
    for now in (replace(armed, version=5), replace(armed, version=5, state="approved")):
        outcome = decide(APPROVAL, now)
        assert isinstance(outcome, Superseded)
        assert outcome.reason["code"] == "superseded"


def test_the_first_destination_whose_guards_hold_is_taken() -> None:
    wide = Guard("wide", lambda asked: asked.metadata.get("wide") is True, "it must open wide")
    door = guarded(T("push", "shut", "open", when=(wide,)), T("push", "shut", "ajar"))
    for metadata, dest in (({"wide": True}, "open"), ({}, "ajar")):
        outcome = decide(door, case("shut", "push", metadata=metadata))
        assert isinstance(outcome, Applied)
        assert outcome.dest == dest


def test_a_move_brings_the_deadline_of_the_state_it_enters() -> None:
    deadline = Deadline(60, "open")
    door = guarded(T("push", "shut", "ajar"), T("open", "ajar", "open"), deadlines=MappingProxyType({"ajar": deadline}))
    outcome = decide(door, case("shut", "push"))
    assert isinstance(outcome, Applied)
    assert outcome.deadline is deadline


def test_what_a_guard_raises_is_not_swallowed() -> None:
    broken = Guard("broken", lambda asked: asked.context["missing"], "never")
    with pytest.raises(KeyError, match="missing"):
        decide(guarded(T("push", "shut", "open", when=(broken,))), case("shut", "push"))


def test_deciding_twice_gives_the_same_and_changes_nothing() -> None:
    asked = case("analysis", "design_complete", context={"a": 1})
    assert decide(STORY, asked) == decide(STORY, asked)
    assert asked == case("analysis", "design_complete", context={"a": 1})


def test_a_trigger_is_not_held_for_an_approval_that_too_few_may_give() -> None:
    door = guarded(T("push", "shut", "open", severity="info", approval=ApprovalPoint(2, ("ann", "bob"))))
    for context, by in (({"author": "ann"}, "cyd"), ({}, "ann"), ({"author": None}, "bob")):
        outcome = decide(door, case("shut", "push", context=context, by=by))
        assert isinstance(outcome, Rejected)
        assert outcome.reason["code"] == "too_few_deciders"
    assert isinstance(decide(door, case("shut", "push", context={"author": "zoe"}, by="ann")), Waiting)


def overridden(definition: Definition, state: str, trigger: str, to: str, *, allowed: bool = True, **facts: Any) -> Any:
    return decide(definition, case(state, trigger, override=Override(to, allowed), **facts))


def test_an_override_asks_no_guard_and_no_approval_and_says_which() -> None:
    refusing = Guard("refusing", lambda asked: asked.context["missing"], "never")
    door = guarded(T("push", "shut", "open", when=(refusing,), severity="info", approval=ApprovalPoint()))
    outcome = overridden(door, "shut", "push", "open")
    assert isinstance(outcome, Applied)
    assert (outcome.dest, outcome.passed_over, outcome.severity) == ("open", ("refusing", "approval"), "warning")


def test_an_override_takes_the_move_that_leads_where_it_says_not_the_first() -> None:
    door = guarded(T("push", "shut", "open", severity="error"), T("push", "shut", "ajar"))
    for to in ("open", "ajar"):
        outcome = overridden(door, "shut", "push", to)
        assert isinstance(outcome, Applied)
        assert (outcome.dest, outcome.severity) == (to, "warning")


@pytest.mark.parametrize(
    ("moves", "state", "trigger", "code"),
    [
        ((T("push", "shut", "ajar"),), "shut", "push", "leads_elsewhere"),
        ((T("push", "shut", "ajar"), T("push", "shut", "ajar")), "shut", "push", "leads_elsewhere"),
        ((T("push", "shut", "open"),), "ajar", "push", "no_such_transition"),
        ((T("push", "shut", "open"),), "shut", "pull", "no_such_transition"),
    ],
)
def test_an_override_never_leaves_the_machine_and_is_told_what_is_legal(
    moves: Any, state: str, trigger: str, code: str
) -> None:
    door = guarded(*moves)
    outcome = overridden(door, state, trigger, "open" if code != "leads_elsewhere" or len(moves) == 1 else "ajar")
    assert isinstance(outcome, Rejected)
    assert outcome.reason["code"] == code
    assert outcome.reason["legal"] == list(door.legal(state))


def test_who_is_no_operator_overrides_nothing() -> None:
    outcome = overridden(guarded(T("push", "shut", "open")), "shut", "push", "open", allowed=False)
    assert isinstance(outcome, Rejected)
    assert outcome.reason["code"] == "not_an_operator"


def test_what_leaves_a_terminal_state_asks_its_guards_of_operators_too_and_keeps_its_severity() -> None:
    ledger = catalogue().get("patch_ledger")
    outcome = overridden(ledger, "committed", "roll_back", "rolled_back", metadata={"reason": "x"})
    assert isinstance(outcome, Rejected)
    assert outcome.reason["missing"] == ["authorized", "compensated"]
    said = {"reason": "x", "authorized_by": "ann", "compensation": {"actions": []}}
    outcome = overridden(ledger, "committed", "roll_back", "rolled_back", metadata=said)
    assert isinstance(outcome, Applied)
    assert (outcome.severity, outcome.passed_over) == ("critical", ())


def test_an_override_of_a_state_since_left_is_superseded() -> None:
    assert isinstance(overridden(STORY, "analysis", "block", "blocked", bound_version=0), Superseded)


@pytest.mark.parametrize(
    "definition",
    sorted(catalogue(), key=lambda each: (each.type, each.version)),
    ids=lambda each: f"{each.type}-{each.version}",
)
def test_a_route_is_the_shortest_way_of_legal_moves_and_never_out_of_a_terminal_state(definition: Definition) -> None:
    distances = {state: {state: 0} for state in definition.states}
    for _ in definition.states:  # Bellman and Ford's way, which shares nothing with the one tried
        for known in distances.values():
            for move in definition.transitions:
                for source in (each for each in move.sources if each in known and not move.exceptional):
                    known[move.dest] = min(known.get(move.dest, len(definition.states)), known[source] + 1)
    for state in definition.states:
        for to in definition.states:
            way = route(definition, state, to)
            assert (None if way is None else len(way)) == distances[state].get(to)
            here = state
            for move in way or ():
                assert here in move.sources
                assert not move.exceptional
                here = move.dest
            assert way is None or here == to
