"""History is searched by name, actor, trigger, state and time, newest first, and never as a whole at once."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from interlock.db.connection import transaction
from interlock.db.core.event_search import EventFilter, FoundEvent, search
from interlock.workers.client.client import Client
from tests.archived import approval, archive, expire_timers
from tests.driving import UP_TO_REVIEW, applied

pytestmark = pytest.mark.integration


def found(client: Client, *, limit: int = 100, **wanted: Any) -> list[FoundEvent]:
    with transaction(client.runtime.database) as connection:
        return search(connection, EventFilter(**wanted), limit=limit).events


def pages(client: Client, *, limit: int, look: int, **wanted: Any) -> Iterator[list[FoundEvent]]:
    before = None
    while True:
        with transaction(client.runtime.database) as connection:
            page = search(connection, EventFilter(**wanted), before=before, limit=limit, look=look)
        yield page.events
        if (before := page.next) is None:
            return


def names(events: list[FoundEvent]) -> list[tuple[str, str]]:
    return [(each["entity_id"], each["trigger"]) for each in events]


@pytest.fixture
def stories(client: Client) -> Client:
    """S-1 went up to review by ann; S-2 was blocked by bob, and is of another project."""
    client.create("story", "S-1")
    applied(client, "S-1", *UP_TO_REVIEW, by="ann")
    other = client.create("story", "S-2", project="other")
    applied(client, other["id"], "block", by="bob")
    return client


def test_each_filter_finds_what_it_names_and_nothing_else(stories: Client) -> None:
    up = [("S-1", each) for each in reversed(UP_TO_REVIEW)]
    assert names(found(stories, type="story")) == [("S-2", "block"), *up]
    assert names(found(stories, by="ann")) == up
    assert names(found(stories, trigger="block")) == [("S-2", "block")]
    assert names(found(stories, state="review")) == [("S-1", "submit_pr")]
    assert names(found(stories, name="S-1")) == up
    assert names(found(stories, name="S-1", trigger="submit_pr", by="ann")) == [("S-1", "submit_pr")]
    assert not found(stories, name="S-1", by="bob")
    assert not found(stories, type="sprint")


def test_a_search_in_some_projects_finds_nothing_of_others(stories: Client) -> None:
    assert {each["project"] for each in found(stories, projects=["other"])} == {"other"}
    assert not found(stories, projects=["other"], name="S-1")
    assert not found(stories, projects=[])


def test_a_period_begins_with_its_first_instant_and_ends_before_its_last(stories: Client) -> None:
    (middle,) = found(stories, trigger="start_coding")
    at = middle["created_at"]
    assert names(found(stories, since=at, until=at + timedelta(microseconds=1))) == [("S-1", "start_coding")]
    assert "start_coding" not in {each["trigger"] for each in found(stories, until=at)}
    assert names(found(stories, until=at)) == [("S-1", "design_complete")]
    assert not found(stories, since=at + timedelta(days=1))


def test_pages_give_each_match_once_however_few_events_one_search_reads(stories: Client) -> None:
    for limit, look in ((1, 1), (1, 100), (3, 2), (100, 1)):
        events = [each for page in pages(stories, limit=limit, look=look, by="ann") for each in page]
        assert names(events) == [("S-1", each) for each in reversed(UP_TO_REVIEW)], (limit, look)
    named = [each for page in pages(stories, limit=1, look=1, name="S-1") for each in page]
    assert len(named) == len(UP_TO_REVIEW)


def test_a_page_may_be_empty_although_the_search_goes_on(stories: Client) -> None:
    first, *rest = pages(stories, limit=10, look=1, by="ann")
    assert first == []
    assert sum(map(len, rest)) == len(UP_TO_REVIEW)


def test_archived_events_are_found(client: Client, project: str, dba: "psycopg.Connection[Any]") -> None:
    approval(client, project, "A-9")
    expire_timers(dba)
    assert archive(client.runtime).events == 1
    assert names(found(client, type="approval")) == [("A-9", "reject")]
    assert names(found(client, name="A-9")) == [("A-9", "reject")]
