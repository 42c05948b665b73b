"""Every column of history and of instances is covered by a hash, derived and checked, or listed with the reason."""

import pytest

from interlock.db.tables.core import instances, transitions
from tests.integration.test_tampering_table import TABLE

TRIED = {each.what for each in TABLE}
NOTE = "a note that the next move clears; nothing is derived from it"
# Column -> the tampering with it that a test tries, under its own words.
EVENTS = {
    "workflow_id": "an event moved to another instance",
    **{
        each: f"an event's `{each}` changed"
        for each in (
            *("id", "seq", "workflow_type", "definition_version", "from_state", "to_state", "trigger", "triggered_by"),
            *("request_id", "authority", "proof", "login", "severity", "metadata", "created_at", "prev_hash", "hash"),
            *("xid", "position"),
        )
    },
}
INSTANCES = {
    "id": "an instance deleted without its history",
    "workflow_type": "an instance's type changed",
    "definition_version": "an instance's type changed",
    "current_state": "an instance's state changed",
    "version": "an instance's version changed",
    "entity_id": "an instance's name changed",
    "project": "an instance's project changed",
    "context": "an instance's context changed",
    "created_by": "an instance's creator changed",
    "created_at": "an instance's time of birth changed",
    "born_version": "an instance's version at birth changed",
    "context_sha256": "an instance's context changed, with its digest",
    "bodies": "the digests of an instance's bodies changed",
    "born_proof": "an instance's birth said to be of a token",
}
UNCOVERED = {"error": NOTE, "retry_count": NOTE, "updated_at": "when it was written last; the archive waits by it"}


def test_every_column_of_an_event_is_covered() -> None:
    assert set(EVENTS) == set(transitions.c.keys()), "say where the new column is covered, and try to change it"


def test_every_column_of_an_instance_is_covered_or_a_note() -> None:
    assert {*INSTANCES, *UNCOVERED} == set(instances.c.keys()), "say where the column is covered, and try to change it"


@pytest.mark.parametrize("what", sorted({*EVENTS.values(), *INSTANCES.values()}))
def test_each_is_tried(what: str) -> None:
    assert what in TRIED
