"""Approvals: the trigger is held, people decide, and the outcome releases or refuses it. Stories wait for their PR."""

from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb
from uuid_utils.compat import uuid7

from interlock.workers.audit.verify import verify
from interlock.workers.client.client import Client
from interlock.workers.engine.trigger_request import Firing
from interlock.workers.overrides.transaction import OverrideOrder, operating
from interlock.workflows.errors import NotYours
from tests.driving import UP_TO_REVIEW, applied, drain_all, make_due, outcome, state, swept, trail
from tests.rights import grant
from tests.tampering import unprotected

pytestmark = pytest.mark.integration


@pytest.fixture
def review(client: Client, project: str) -> UUID:
    """A pull request of ann's, approved by bob, with a story in review behind it."""
    story = client.create("story", "S-1", project=project)["id"]
    applied(client, story, *UP_TO_REVIEW, by="ann")
    context = {"author": "ann", "story_id": "S-1"}
    made: UUID = client.create("pr_review", "PR-1", project=project, context=context)["id"]
    applied(client, made, "start_review", "approve", by="bob")
    return made


def fire(client: Client, ref: str | UUID, trigger: str, by: str) -> dict[str, Any]:
    """Fire, apply, and return what became of it."""
    receipt = client.fire(ref, trigger, by=by)
    drain_all(client.runtime)
    return outcome(client, receipt.request_id)


def votes_needed(client: Client, count: int, **context: Any) -> UUID:
    """An approval of its own, with a quorum."""
    about = {"quorum": count, "author": "ann"} | context
    made: UUID = client.create("approval", "A-1", project=uuid7(), context=about)["id"]
    return made


def test_a_merge_is_held_and_its_approval_tells_what_for(client: Client, review: UUID) -> None:
    merge = fire(client, review, "merge", "bob")
    assert merge["status"] == "waiting"
    approval = client.show(merge["held_by"])
    assert merge["result"]["approval"] == f"approval/{approval['entity_id']}"
    assert approval["current_state"] == "pending"
    assert approval["context"] == {
        "subject": "pr_review/PR-1",
        "subject_id": str(review),
        "subject_version": 2,
        "trigger": "merge",
        "request_id": merge["request_id"],
        "requested_by": "bob",
        "author": "ann",
        "quorum": 1,
        "deciders": [],
    }
    assert [effect["name"] for effect in approval["effects"]] == ["notice"]
    assert state(client, review) == "approved"


def test_an_approval_given_releases_the_merge_and_approves_the_story(client: Client, review: UUID) -> None:
    merge = fire(client, review, "merge", "bob")
    assert fire(client, merge["held_by"], "approve", "cyd")["status"] == "applied"
    assert outcome(client, merge["request_id"])["status"] == "applied"
    assert state(client, review) == "merged"
    assert state(client, "S-1") == "testing"
    (followed,) = [event for event in client.history("S-1") if event["trigger"] == "approve"]
    merged = client.history(review)[-1]
    assert followed["metadata"] == {"caused_by": str(merged["id"])}
    assert followed["triggered_by"] == "bob"


def test_a_story_cannot_be_approved_before_its_pull_request_is_merged(client: Client, review: UUID) -> None:
    refused = fire(client, "S-1", "approve", "bob")
    assert refused["status"] == "rejected"
    assert refused["result"]["missing"] == ["pull_request_merged"]


def test_a_story_with_two_pull_requests_waits_for_both(client: Client, review: UUID, project: str) -> None:
    other = client.create("pr_review", "PR-2", project=project, context={"author": "ann", "story_id": "S-1"})["id"]
    applied(client, other, "start_review", "approve", by="bob")
    for number, (each, stands) in enumerate(((review, "review"), (other, "testing"))):
        merge = fire(client, each, "merge", "bob")
        fire(client, merge["held_by"], "approve", "cyd")
        assert state(client, "S-1") == stands, number


def test_the_author_cannot_approve_though_somebody_else_asked(client: Client, review: UUID) -> None:
    merge = fire(client, review, "merge", "bob")
    with pytest.raises(NotYours, match="ann is its author"):
        client.fire(merge["held_by"], "approve", by="ann")
    assert outcome(client, merge["request_id"])["status"] == "waiting"


def test_without_an_author_whoever_asked_cannot_approve(client: Client, project: str) -> None:
    sprint = client.create("sprint", "P-1", project=project)["id"]
    start = fire(client, sprint, "start", "ann")
    with pytest.raises(NotYours, match="ann is its author"):
        client.fire(start["held_by"], "approve", by="ann")
    assert fire(client, start["held_by"], "approve", "bob")["status"] == "applied"
    assert state(client, sprint) == "active"


@pytest.mark.parametrize("author", [None, "", 5, ["ann"], " ann"])
def test_an_author_that_is_no_name_is_whoever_asked(
    client: Client, dba: psycopg.Connection[Any], project: str, author: object
) -> None:
    sprint = client.create("sprint", "P-1", project=project)["id"]
    with unprotected(dba, "workflow_instances"):
        dba.execute("UPDATE workflow_instances SET context = %s WHERE id = %s", (Jsonb({"author": author}), sprint))
    start = fire(client, sprint, "start", "ann")
    assert client.show(start["held_by"])["context"]["author"] == "ann"
    with pytest.raises(NotYours, match="ann is its author"):
        client.fire(start["held_by"], "approve", by="ann")


@pytest.mark.parametrize(
    "terms",
    [{"quorum": 0}, {"quorum": 0.5}, {"quorum": "2"}, {"quorum": None}, {"author": None}, {"author": ""},
     {"deciders": [["bob"]]}, {"deciders": "bob"}, {"deciders": [" bob"]}, {"deciders": None}],
)  # fmt: skip
def test_no_approval_is_born_that_cannot_be_decided(
    dba: psycopg.Connection[Any], project: str, terms: dict[str, Any]
) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match="terms of approval A-1 are not sound"):
        dba.execute(
            "INSERT INTO workflow_instances (id, workflow_type, definition_version, current_state, entity_id, context,"
            " project, created_by) VALUES (gen_random_uuid(), 'approval', '1.0.0', 'pending', 'A-1', %s, %s, 'x')",
            (Jsonb(terms), project),
        )


def test_an_override_is_no_vote_and_what_it_releases_says_so(client: Client, review: UUID) -> None:
    merge = fire(client, review, "merge", "bob")
    grant(client, "olga")
    with operating(client.runtime, OverrideOrder("olga", "cyd is ill"), "walk", merge["held_by"]) as operation:
        operation.walk(operation.find(merge["held_by"]), "approved")
    drain_all(client.runtime)
    said = client.history(review)[-1]["metadata"]["approval"]
    assert (said["votes"], said["overridden_by"]) == ([], "olga")
    assert state(client, review) == "merged"
    assert verify(client.runtime).ok


def test_an_approval_refused_refuses_the_merge_for_good(client: Client, review: UUID) -> None:
    merge = fire(client, review, "merge", "bob")
    fire(client, merge["held_by"], "reject", "cyd")
    refused = outcome(client, merge["request_id"])
    assert refused["status"] == "rejected"
    assert refused["result"]["code"] == "approval"
    assert refused["result"]["message"].endswith("was rejected")
    assert state(client, review) == "approved"
    assert fire(client, review, "merge", "bob")["status"] == "waiting"  # it may be asked again


def test_a_second_merge_is_refused_while_the_first_is_held(client: Client, review: UUID) -> None:
    first = fire(client, review, "merge", "bob")
    second = fire(client, review, "merge", "bob")
    assert (second["status"], second["result"]["code"]) == ("rejected", "already_held")
    both = [Firing(review, "dismiss", "bob"), Firing(review, "approve", "bob")]
    client.fire_many(both)
    drain_all(client.runtime)
    assert outcome(client, first["request_id"])["status"] == "waiting"


def test_two_merges_in_one_round_ask_for_one_approval(client: Client, review: UUID) -> None:
    receipts = client.fire_many([Firing(review, "merge", "bob"), Firing(review, "merge", "cyd")])
    drain_all(client.runtime)
    assert [outcome(client, each.request_id)["status"] for each in receipts] == ["waiting", "rejected"]


@pytest.mark.parametrize("rounds", [1, 3], ids=["within the round that moves it", "in a later round"])
def test_what_was_held_for_an_earlier_version_may_be_asked_for_anew(client: Client, review: UUID, rounds: int) -> None:
    first = fire(client, review, "merge", "cyd")
    firings = [Firing(review, "dismiss", "ann"), Firing(review, "approve", "bob"), Firing(review, "merge", "bob")]
    receipts = []
    for each in [firings] if rounds == 1 else [[firing] for firing in firings]:
        receipts += client.fire_many(each)
        drain_all(client.runtime)
    second = outcome(client, receipts[-1].request_id)
    assert (second["status"], outcome(client, first["request_id"])["status"]) == ("waiting", "waiting")
    assert second["held_by"] != first["held_by"]
    assert fire(client, second["held_by"], "approve", "cyd")["status"] == "applied"
    assert state(client, review) == "merged"


def test_what_is_held_holds_up_nothing_and_is_superseded_once_its_instance_has_moved(
    client: Client, review: UUID
) -> None:
    merge = fire(client, review, "merge", "bob")
    applied(client, review, "dismiss")
    fire(client, merge["held_by"], "approve", "cyd")
    late = outcome(client, merge["request_id"])
    assert (late["status"], late["result"]["code"]) == ("superseded", "superseded")
    assert state(client, review) == "reviewing"


def test_an_approval_expires_by_its_timer_and_refuses_what_it_held(
    client: Client, review: UUID, dba: "psycopg.Connection[Any]"
) -> None:
    merge = fire(client, review, "merge", "bob")
    swept(client.runtime, "dispatch")
    assert drain_all(client.runtime) == 0  # not before its time
    assert make_due(dba, "expire") == 1
    dba.execute("DELETE FROM sweeps")
    assert swept(client.runtime, "dispatch")
    drain_all(client.runtime)
    assert state(client, merge["held_by"]) == "expired"
    refused = outcome(client, merge["request_id"])
    assert refused["status"] == "rejected"
    assert refused["result"]["message"].endswith("was expired")
    assert [event["triggered_by"] for event in client.history(merge["held_by"])] == ["system"]


def test_the_timer_is_armed_for_the_time_the_definition_says(client: Client, dba: "psycopg.Connection[Any]") -> None:
    votes_needed(client, 1)
    row = dba.execute(
        "SELECT round(extract(epoch FROM not_before - accepted_at)), status, origin, bound_version"
        " FROM trigger_requests"
    ).fetchone()
    assert row == (72 * 3600, "scheduled", "timer", 0)


def test_a_timer_for_a_state_that_was_left_is_superseded(client: Client, dba: "psycopg.Connection[Any]") -> None:
    approval = votes_needed(client, 1)
    fire(client, approval, "approve", "bob")
    make_due(dba, "expire")
    swept(client.runtime, "dispatch")
    drain_all(client.runtime)
    assert dba.execute("SELECT status FROM trigger_requests WHERE origin = 'timer'").fetchone() == ("superseded",)
    assert trail(client, approval) == ["approve"]


def test_of_a_quorum_of_two_each_vote_is_an_event_and_the_second_decides(client: Client) -> None:
    approval = votes_needed(client, 2)
    assert fire(client, approval, "approve", "bob")["status"] == "applied"
    assert state(client, approval) == "pending"
    assert fire(client, approval, "approve", "bob")["result"]["missing"] == ["not_voted_yet"]
    assert fire(client, approval, "approve", "cyd")["status"] == "applied"
    voted, decided = client.history(approval)
    assert (voted["triggered_by"], voted["to_state"], voted["authority"]) == ("bob", "pending", "decider")
    assert (decided["triggered_by"], decided["to_state"]) == ("cyd", "approved")
    assert decided["metadata"]["votes"] == ["bob", "cyd"]
    assert decided["metadata"]["terms"]["quorum"] == 2
    assert decided["metadata"]["terms"]["author"] == "ann"


def test_votes_in_one_round_count_together(client: Client) -> None:
    approval = votes_needed(client, 3)
    receipts = client.fire_many([Firing(approval, "approve", by) for by in ("bob", "bob", "cyd", "dan", "eve")])
    drain_all(client.runtime)
    statuses = [outcome(client, each.request_id)["status"] for each in receipts]
    assert statuses == ["applied", "rejected", "applied", "applied", "rejected"]
    assert [event["to_state"] for event in client.history(approval)] == ["pending", "pending", "approved"]


def test_a_rejected_or_expired_approval_keeps_the_votes_for_it(client: Client, dba: "psycopg.Connection[Any]") -> None:
    for ending in ("reject", "expire"):
        approval = votes_needed(client, 2)
        fire(client, approval, "approve", "bob")
        if ending == "reject":
            fire(client, approval, "reject", "cyd")
        else:
            make_due(dba, "expire")
            swept(client.runtime, "dispatch")
            drain_all(client.runtime)
        assert trail(client, approval) == ["approve", ending]


def test_a_vote_does_not_put_off_the_end_of_an_approval(client: Client, dba: "psycopg.Connection[Any]") -> None:
    approval = votes_needed(client, 3)
    ends = "SELECT not_before, bound_version FROM trigger_requests WHERE origin = 'timer' ORDER BY seq"
    ((due, _),) = dba.execute(ends).fetchall()
    for by in ("bob", "cyd"):
        fire(client, approval, "approve", by)
    assert dba.execute(ends).fetchall() == [(due, 0), (due, 1), (due, 2)]


def test_only_the_deciders_named_decide(client: Client, dba: "psycopg.Connection[Any]") -> None:
    approval = votes_needed(client, 1, deciders=["cyd"])
    for trigger in ("approve", "reject"):
        with pytest.raises(NotYours, match="bob is none of its deciders"):
            client.fire(approval, trigger, by="bob")
    assert fire(client, approval, "approve", "cyd")["status"] == "applied"
    tried = dba.execute(
        "SELECT triggered_by, metadata->>'attempted', metadata->>'reason' FROM workflow_transitions"
        " WHERE workflow_type = 'refusal_log' AND metadata->>'instance_id' = %s ORDER BY seq",
        (str(approval),),
    ).fetchall()
    assert [each[:2] for each in tried] == [("bob", "approve"), ("bob", "reject")]
    assert "bob is none of its deciders" in tried[0][2]


def test_long_names_still_get_an_approval_of_their_own(client: Client, project: str) -> None:
    sprint = client.create("sprint", "x" * 100, project=project)["id"]
    start = fire(client, sprint, "start", "ann")
    assert start["status"] == "waiting"
    fire(client, start["held_by"], "reject", "bob")
    assert fire(client, sprint, "start", "ann")["held_by"] != start["held_by"]


def test_an_approval_releases_nothing_once_its_instance_has_moved(
    client: Client, review: UUID, dba: "psycopg.Connection[Any]"
) -> None:
    held = fire(client, review, "merge", "bob")
    applied(client, review, "dismiss", "approve", by="bob")  # with other commits than those that cyd is shown
    again = fire(client, review, "merge", "bob")
    assert again["status"] == "waiting"
    assert fire(client, review, "merge", "bob")["result"]["code"] == "already_held"
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="is not approved"):
        dba.execute(
            "UPDATE trigger_requests SET granted = true, bound_version = 4 WHERE held_by = %s", (held["held_by"],)
        )
    fire(client, held["held_by"], "approve", "cyd")
    late = outcome(client, held["request_id"])
    assert (late["status"], late["result"]["code"]) == ("superseded", "superseded")
    assert "has moved since" in late["result"]["message"]
    assert state(client, review) == "approved"
    fire(client, again["held_by"], "approve", "cyd")
    assert state(client, review) == "merged"


@pytest.mark.parametrize(
    ("context", "said"),
    [
        ('{"deciders": ["cyd"]}', "bob is none of its deciders"),
        ('{"deciders": ["bob"], "author": "bob"}', "bob is its author"),
        ('{"author": "bob"}', "bob is its author"),
        ('{"deciders": [], "author": "ann"}', None),
        ('{"deciders": null}', None),
        ("{}", None),
        ('{"deciders": 5}', "bob is none of its deciders"),  # as only SQL can write them
        ('{"deciders": "cyd"}', "bob is none of its deciders"),
        ('{"deciders": {"cyd": 1}}', "bob is none of its deciders"),
    ],
)
def test_terms_of_any_shape_say_who_decides(dba: "psycopg.Connection[Any]", context: str, said: str | None) -> None:
    asked = "SELECT interlock.no_decider('bob', 'approve', 'approval', '1.0.0', %s::jsonb)"
    assert dba.execute(asked, (context,)).fetchone() == (said,)
