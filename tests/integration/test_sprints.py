"""Stories and sprints: a sprint is completed without open stories, and a story changes sprints by an event only."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.errors import RestrictViolation
from uuid_utils.compat import uuid7

from interlock.db.connection import transaction
from interlock.db.core import requests
from interlock.db.core.requests import partition_of
from interlock.db.core.rounds import gather_for
from interlock.workers.audit.verify import verify
from interlock.workers.client.client import Client
from interlock.workers.client.receipts import Receipt
from interlock.workers.operations.stuck.detector import survey
from interlock.workflows.errors import BadInput, UnknownInstance
from tests.driving import UP_TO_REVIEW, applied, drain_all, make_due, outcome, state
from tests.stuck import paste, terminal
from tests.tampering import unprotected
from tests.waiting import eventually

pytestmark = pytest.mark.integration
Dba = psycopg.Connection[Any]
MOVED = {"sprint_id": "SP-2", "reason": "not ready"}


@pytest.fixture
def review(client: Client) -> UUID:
    """The sprint SP-1, in review; SP-2 is being planned."""
    client.create("sprint", "SP-2")
    made: UUID = client.create("sprint", "SP-1")["id"]
    approve(client, made, "start")
    applied(client, made, "finish")
    return made


@pytest.fixture
def story(client: Client, review: UUID) -> UUID:
    """A story of SP-1."""
    made: UUID = client.create("story", "S-1", context={"sprint_id": "SP-1"})["id"]
    return made


def approve(client: Client, sprint: UUID, trigger: str) -> dict[str, Any]:
    """Fire a trigger of a sprint, and approve it; returns what became of it."""
    held = ask(client, sprint, trigger)
    if held["status"] == "waiting":
        client.fire(held["held_by"], "approve", by="another")
        drain_all(client.runtime)
    return outcome(client, held["request_id"])


def ask(client: Client, ref: UUID | str, trigger: str, **data: Any) -> dict[str, Any]:
    receipt = client.fire(ref, trigger, by="ann", data=data)
    drain_all(client.runtime)
    return outcome(client, receipt.request_id)


def sprint_of(client: Client, story: UUID) -> list[str]:
    return [each["entity_id"] for each in client.show(story)["links"] if each["role"] == "sprint"]


def finish(client: Client, story: UUID, name: str) -> None:
    """Lead a story to its end."""
    applied(client, story, *UP_TO_REVIEW)
    pull_request = client.create("pr_review", f"PR-{name}", context={"author": "bob", "story_id": name})["id"]
    applied(client, pull_request, "start_review", "approve")
    approve(client, pull_request, "merge")
    applied(client, story, "tests_pass")


@pytest.mark.promise("O16")
def test_a_sprint_is_completed_once_each_story_is_done_or_moved_and_the_error_names_the_open_ones(
    client: Client, review: UUID, story: UUID
) -> None:
    """SPRINT-3."""
    others = [client.create("story", f"S-{number}", context={"sprint_id": "SP-1"})["id"] for number in (2, 3)]
    client.create("story", "S-4")  # of no sprint
    refused = approve(client, review, "complete")
    assert (refused["status"], refused["result"]["missing"]) == ("rejected", ["stories_done"])
    assert refused["result"]["message"].endswith(
        "moved to another sprint or out of this one: S-1 (analysis), S-2 (analysis), S-3 (analysis)"
    )
    assert ask(client, others[0], "move_to_sprint", **MOVED)["status"] == "applied"
    assert ask(client, others[1], "leave_sprint", reason="dropped")["status"] == "applied"
    assert approve(client, review, "complete")["result"]["message"].endswith("out of this one: S-1 (analysis)")
    finish(client, story, "S-1")
    assert approve(client, review, "complete")["status"] == "applied"
    assert state(client, review) == "done"
    assert verify(client.runtime).ok


def test_what_is_open_when_the_approval_is_given_still_counts(client: Client, review: UUID) -> None:
    held = ask(client, review, "complete")
    assert held["status"] == "waiting"
    client.create("story", "S-9", context={"sprint_id": "SP-1"})
    client.fire(held["held_by"], "approve", by="another")
    drain_all(client.runtime)
    assert outcome(client, held["request_id"])["result"]["message"].endswith("S-9 (analysis)")
    assert state(client, review) == "review"


def test_a_move_to_another_sprint_is_an_event_with_who_and_why_and_leaves_the_state(
    client: Client, review: UUID, story: UUID
) -> None:
    """STORY-6."""
    applied(client, story, "design_complete")
    assert ask(client, story, "move_to_sprint", **MOVED)["status"] == "applied"
    event = client.history(story)[-1]
    assert (event["from_state"], event["to_state"], event["triggered_by"]) == ("design", "design", "ann")
    assert event["metadata"]["reason"] == "not ready"
    other = client.show("sprint/SP-2")
    assert event["metadata"]["relinked"] == {
        "role": "sprint",
        "from": [{"id": str(review), "entity_id": "SP-1"}],
        "to": {"id": str(other["id"]), "entity_id": "SP-2"},
    }
    assert sprint_of(client, story) == ["SP-2"]
    assert [each["entity_id"] for each in other["links"]] == ["S-1"]
    assert ask(client, story, "leave_sprint", reason="later")["status"] == "applied"
    assert sprint_of(client, story) == []
    assert client.history(story)[-1]["metadata"]["relinked"]["to"] is None
    assert verify(client.runtime).ok


@pytest.mark.parametrize(
    ("data", "missing"),
    [
        ({"sprint_id": "SP-2"}, "reason_given"),
        ({"reason": "why"}, "sprint_open"),
        ({"sprint_id": "SP-3", "reason": "why"}, "sprint_open"),
        ({"sprint_id": ["SP-2"], "reason": "why"}, "sprint_open"),
        ({"sprint_id": "S-1", "reason": "why"}, "sprint_open"),
        ({"sprint_id": "SP-1", "reason": "why"}, "another_sprint"),
    ],
)
def test_a_story_moves_only_to_another_sprint_that_there_is_and_with_a_reason(
    client: Client, story: UUID, data: dict[str, Any], missing: str
) -> None:
    assert ask(client, story, "move_to_sprint", **data)["result"]["missing"] == [missing]
    assert sprint_of(client, story) == ["SP-1"]


def test_nothing_is_added_to_a_sprint_that_is_done(client: Client, review: UUID) -> None:
    """STORY-5."""
    story = client.create("story", "S-1")["id"]
    assert approve(client, review, "complete")["status"] == "applied"
    assert ask(client, story, "move_to_sprint", sprint_id="SP-1", reason="why")["result"]["missing"] == ["sprint_open"]
    with pytest.raises(BadInput, match=r"sprint SP-1 has ended \(done\): nothing is added to it"):
        client.create("story", "S-2", context={"sprint_id": "SP-1"})
    with pytest.raises(UnknownInstance, match="sprint 'SP-9' does not exist"):
        client.create("story", "S-2", context={"sprint_id": "SP-9"})


@pytest.fixture
def beside(client: Client, review: UUID) -> UUID:
    """A story of no sprint, in the partition of SP-1."""
    id_ = UUID(bytes=uuid7().bytes[:-1] + review.bytes[-1:])
    client.create_many([replace(client.birth("story", "S-1"), id=id_)])
    return id_


@pytest.mark.parametrize(("delay", "expected"), [(1, ("rejected", "applied")), (0, ("applied", "rejected"))])
def test_in_one_batch_too_no_open_story_gets_into_a_sprint_that_is_completed(
    client: Client, dba: Dba, review: UUID, beside: UUID, delay: int, expected: tuple[str, str]
) -> None:
    """MACHINE-11. Requests are decided in the order accepted: what was fired for later comes before `complete`."""

    def move() -> Receipt:
        data = {"sprint_id": "SP-1", "reason": "why"}
        return client.fire(beside, "move_to_sprint", by="ann", data=data, after=timedelta(hours=delay))

    moving = move() if delay else None
    held = ask(client, review, "complete")
    client.fire(held["held_by"], "approve", by="another")
    client.runtime.applier.apply_partition(partition_of(held["held_by"]))
    if moving:
        make_due(dba, "move_to_sprint")
        with transaction(client.runtime.database) as connection:
            requests.wake(connection, limit=10)
    moving = moving or move()
    drain_all(client.runtime)
    found = (outcome(client, held["request_id"])["status"], outcome(client, moving.request_id)["status"])
    assert found == expected


@pytest.fixture
def apart(client: Client, review: UUID) -> UUID:
    """A story of no sprint, in another partition than SP-1."""
    last = bytes([(review.bytes[-1] + 1) % 16])
    id_ = UUID(bytes=uuid7().bytes[:-1] + last)
    client.create_many([replace(client.birth("story", "S-1"), id=id_)])
    return id_


def test_a_story_that_moves_and_the_completion_of_its_new_sprint_wait_for_each_other(
    client: Client, dba: Dba, review: UUID, apart: UUID
) -> None:
    """SPRINT-3."""
    held = ask(client, review, "complete")
    moving = client.fire(apart, "move_to_sprint", by="ann", data={"sprint_id": "SP-1", "reason": "why"})
    applier = client.runtime.applier
    waiting = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with ThreadPoolExecutor(1) as threads:
        with transaction(client.runtime.database) as connection:
            assert applier.round(connection, gather_for(connection, [apart])).taken == 1
            client.fire(held["held_by"], "approve", by="another")
            completing = threads.submit(drain_all, client.runtime)
            eventually(lambda: dba.execute(waiting).fetchone())
        completing.result(timeout=60)
    assert outcome(client, moving.request_id)["status"] == "applied"
    assert outcome(client, held["request_id"])["result"]["message"].endswith("S-1 (analysis)")


def test_postgresql_refuses_that_a_story_changes_its_sprint_without_an_event_that_says_so(
    client: Client, dba: Dba, review: UUID, story: UUID
) -> None:
    for change in (
        "DELETE FROM workflow_links WHERE source_id = %(story)s",
        "UPDATE workflow_links SET target_id = %(other)s WHERE source_id = %(story)s",
    ):
        with pytest.raises(RestrictViolation, match=r"sprint of .* cannot be deleted or changed"):
            dba.execute(change.encode(), {"story": story, "other": client.show("sprint/SP-2")["id"]})
    with pytest.raises(BadInput, match=r"data\.relinked is what Interlock itself writes"):
        client.fire(story, "block", by="eve", data={"relinked": {"role": "sprint", "from": [{"id": str(review)}]}})
    assert verify(client.runtime).ok


def test_a_link_that_is_not_as_history_says_is_found_though_its_record_was_written_anew(
    client: Client, dba: Dba, story: UUID
) -> None:
    assert ask(client, story, "move_to_sprint", **MOVED)["status"] == "applied"
    with unprotected(dba, "workflow_links", "link_changes"):
        dba.execute("DELETE FROM workflow_links WHERE source_id = %s", (story,))
        dba.execute("DELETE FROM link_changes WHERE source_id = %s AND number = 2", (story,))
    problems = [each.message for each in verify(client.runtime).problems]
    assert any("its history says that it is SP-2" in each for each in problems), problems


def test_a_sprint_in_review_is_stuck_for_its_open_stories(client: Client, review: UUID, story: UUID) -> None:
    """SPRINT-4."""
    _, found = survey(client.runtime, type_="sprint", everything=True)
    (stuck,) = [each for each in found if each.workflow_id == review]
    assert stuck.reason == "it waits for story S-1 (analysis)"
    assert stuck.command == f"interlock show {story}"


def test_show_says_which_stories_a_sprint_lacks_and_what_leads_them_on(
    client: Client, review: UUID, story: UUID
) -> None:
    """SPRINT-4."""
    client.create("story", "S-2", context={"sprint_id": "SP-1"})
    assert client.show(review)["missing"]["complete"].endswith("out of this one: S-1 (analysis), S-2 (analysis)")
    said = terminal(client.runtime).run("show", "SP-1").out
    assert "complete is refused now: every story of the sprint must be done" in said
    (offer,) = [line.strip() for line in said.splitlines() if f"fire {story}" in line]
    paste(client.runtime, offer)
    assert state(client, story) == "design"
    ask(client, client.show("S-2")["id"], "leave_sprint", reason="dropped")
    finish_from_design(client, story)
    assert client.show(review)["missing"] == {}


def finish_from_design(client: Client, story: UUID) -> None:
    applied(client, story, "start_coding", "submit_pr")
    assert client.show(story)["missing"]["approve"] == (
        "every pull request linked to the story must be merged, and there must be one"
    )
    pull_request = client.create("pr_review", "PR-9", context={"author": "bob", "story_id": "S-1"})["id"]
    assert client.show(story)["missing"]["approve"].endswith("there must be one: PR-9 (submitted)")
    applied(client, pull_request, "start_review", "approve")
    approve(client, pull_request, "merge")
    applied(client, story, "tests_pass")  # the merge approved it
