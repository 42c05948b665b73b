"""The policies over every definition; and docs/policies.md names for each policy where it is held and tried."""

import re
from pathlib import Path

import pytest

from interlock.workers.definitions import release_locks
from interlock.workflows.catalogue import catalogue
from interlock.workflows.definition import Definition
from interlock.workflows.machines.orchestration.link_guards import APPLY_RETRIES
from interlock.workflows.versioning import levels

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")
definitions = list(catalogue())
every = pytest.mark.parametrize("definition", definitions, ids=lambda each: f"{each.type}-{each.version}")

# POLICY-4, as it is written there.
ORDER = {
    "task": {
        "pending": 0, "blocked": 0, "queued": 1, "running": 2, "retrying": 2, "validating": 3,
        "completed": 4, "failed": 4, "cancelled": 4,
    },
    "patch_ledger": {
        "created": 0, "validated": 1, "queued": 2, "applied": 3, "apply_failed": 3, "verified": 4,
        "committed": 5, "quarantined": 5, "rolled_back": 6, "dropped": 5,
    },
}  # fmt: skip

# POLICY-2: every way back there is, and why.
BACK = {
    ("task", "retrying", "queued", "retry"),
    ("task", "queued", "blocked", "blocked"),  # TASK-11: its gate failed
    ("patch_ledger", "apply_failed", "queued", "retry"),
    ("step", "S_FAILED", "S_RETRYING", "retry"),
    ("workstream", "S_FAILED", "S_RETRYING", "retry"),
    *(("story", state, "implementation", "rework") for state in ("review", "testing")),
    *(("story", state, "blocked", "blocked") for state in ("review", "testing")),
    ("pr_review", "approved", "reviewing", "rework"),
    ("deprecation", "removal_proposed", "announced", "rework"),
}

# POLICY-5: where each type ends.
ENDS = {
    "run": {"succeeded", "failed", "canceled"},
    "workstream": {"completed", "failed", "cancelled", "skipped"},
    "task": {"completed", "failed", "cancelled"},
    "worker": {"shutdown"},
    "patch_ledger": {"committed", "rolled_back", "quarantined", "dropped"},
    "test_gate": {"PASSED", "FAILED", "CANCELLED"},
}
EXCEPTIONS = {
    ("patch_ledger", "committed", "rolled_back"),
    ("patch_ledger", "quarantined", "dropped"),
}  # POLICY-6


@every
def test_every_definition_declares_which_way_is_forward(definition: Definition) -> None:
    assert sorted(levels.levels(definition)) == sorted(definition.states)
    assert levels.levels(definition)[definition.initial] == 0
    assert list(levels.faults(definition)) == []


@pytest.mark.parametrize("type_", ORDER)
def test_the_order_is_the_specs_where_it_gives_one(type_: str) -> None:
    for definition in definitions:
        if definition.type == type_ and not definition.version.startswith("0."):
            assert levels.levels(definition) == ORDER[type_]


def test_nothing_goes_back_but_where_it_is_excepted() -> None:
    found = {
        (definition.type, source, move.dest, move.back)
        for definition in definitions
        for move, source in levels.backward(definition)
    }
    assert found == BACK


def test_retries_are_bounded_at_three_unless_a_plan_says_otherwise() -> None:
    assert APPLY_RETRIES == levels.RETRIES == 3
    table = (ROOT / "db" / "migrations" / "sql" / "orchestration" / "task.sql").read_text()
    assert f"max_retries           integer     NOT NULL DEFAULT {levels.RETRIES}" in table
    lineage = (ROOT / "db" / "core" / "sql" / "guard_rows" / "row_lineage.sql").read_text()
    assert f"'max_retries')::integer, {levels.RETRIES})" in lineage


@pytest.mark.parametrize("type_", ENDS)
def test_what_ends_is_what_the_spec_says(type_: str) -> None:
    assert catalogue().get(type_).terminal == ENDS[type_]


def test_what_has_ended_is_left_only_where_it_is_excepted_and_under_somebodys_authority() -> None:
    left = {
        (definition.type, source, move.dest)
        for definition in definitions
        for move in definition.transitions
        for source in move.sources
        if source in definition.terminal
    }
    assert left == EXCEPTIONS
    authority = {
        guard.name for each in definitions for move in each.transitions if move.exceptional for guard in move.when
    }
    assert {"authorized", "reason_given", "compensated"} <= authority


def test_every_released_definition_is_as_it_was_released() -> None:
    assert release_locks.complaints(()) == []


def rows() -> list[list[str]]:
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.splitlines()
        if line.startswith("| POLICY-")
    ]


def test_the_page_names_each_policy_where_it_is_held_and_a_test_that_is_there() -> None:
    assert {row[0] for row in rows()} == {f"POLICY-{number}" for number in (1, 2, 3, 5, 7, 8, 9)}
    for row in rows():
        tests = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", row[3])
        assert tests, row
        for file, test in tests:
            text = (ROOT / file).read_text()
            assert not test or f"def {test}(" in text, (file, test)


def test_each_place_that_the_page_names_is_there() -> None:
    schema = "".join(file.read_text() for file in sorted((ROOT / "db" / "migrations" / "sql").rglob("*.sql")))
    for row in rows():
        places = re.findall(r"`([^`]+)`", row[2])
        assert places, row
        for place in places:
            file, _, name = place.partition(":")
            if "/" in file:
                assert (ROOT / file).exists(), place
                assert name in (ROOT / file).read_text(), place
            else:
                assert place in schema, place
