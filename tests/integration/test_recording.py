"""Definitions as recorded: once, by checksum, and never with other content under the same version."""

from dataclasses import replace
from typing import Any

import psycopg
import pytest

from interlock.db.connection import transaction
from interlock.db.core import definitions
from interlock.workers.runtime import Runtime
from interlock.workflows.catalogue import Catalogue, catalogue
from interlock.workflows.definition import Definition, T
from interlock.workflows.errors import DefinitionChanged
from interlock.workflows.versioning.export import canonical_checksum, checksum

pytestmark = pytest.mark.integration
STORY = catalogue().get("story")


def record(runtime: Runtime, *changed: Definition) -> list[Definition]:
    with transaction(runtime.owned) as connection:
        return definitions.record(connection, Catalogue(changed))


def test_what_is_recorded_already_is_not_recorded_again(runtime: Runtime) -> None:
    with transaction(runtime.owned) as connection:
        assert definitions.record(connection, catalogue()) == []


def test_what_postgresql_keeps_has_the_checksum_it_was_recorded_with(runtime: Runtime) -> None:
    with transaction(runtime.database) as connection:
        kept = definitions.listed(connection)
    assert {(row["type"], row["version"]): row["checksum"] for row in kept} == {
        (each.type, each.version): checksum(each) for each in catalogue()
    }
    assert all(canonical_checksum(row["body"]) == row["checksum"] for row in kept)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (
            {"transitions": (*STORY.transitions[:-1], T("unblock", "blocked", "analysis", back="rework"))},
            r"MAJOR: transition unblock \(blocked → implementation\) removed.*2\.0\.0",
        ),
        ({"transitions": (*STORY.transitions, T("abandon", "blocked", "done"))}, r"MINOR: transition abandon.*1\.1\.0"),
        (
            {
                "states": (*STORY.states, "dropped"),
                "order": (*STORY.order, ("dropped",)),
                "transitions": (*STORY.transitions, T("drop", "blocked", "dropped")),
            }
            | {"terminal": STORY.terminal | {"dropped"}},
            "MAJOR: state dropped added",
        ),
    ],
    ids=["major", "minor", "state"],
)
def test_the_same_version_with_other_content_is_refused_with_the_part_to_raise(
    runtime: Runtime, changed: dict[str, Any], says: str
) -> None:
    with pytest.raises(DefinitionChanged, match=rf"story 1\.0\.0 was changed after it was recorded.*{says}"):
        record(runtime, replace(STORY, **changed))


def test_a_refused_recording_records_nothing(runtime: Runtime, dba: "psycopg.Connection[Any]") -> None:
    before = dba.execute("SELECT count(*) FROM workflow_definitions").fetchone()
    with pytest.raises(DefinitionChanged):
        record(runtime, replace(STORY, version="2.0.0"), replace(STORY, transitions=STORY.transitions[::-1]))
    assert dba.execute("SELECT count(*) FROM workflow_definitions").fetchone() == before


def test_other_words_are_no_other_content(runtime: Runtime) -> None:
    assert record(runtime, replace(STORY, summary="Told otherwise.")) == []


def test_versions_stand_side_by_side(runtime: Runtime, dba: "psycopg.Connection[Any]") -> None:
    newer = replace(STORY, version="1.1.0", transitions=(*STORY.transitions, T("abandon", "blocked", "done")))
    assert record(runtime, newer) == [newer]
    rows = dba.execute(
        "SELECT version, count(*) FROM definition_transitions WHERE type = 'story' GROUP BY 1 ORDER BY 1"
    ).fetchall()
    assert rows == [("1.0.0", 25), ("1.1.0", 26)]


def test_definitions_of_a_users_module_are_recorded_and_used(runtime: Runtime) -> None:
    with transaction(runtime.owned) as connection:
        new = definitions.record(connection, catalogue(("tests.machines",)))
    assert [each.type for each in new] == ["announcement", "turnstile"]
