"""Every move of every machine is made by the engine and kept by PostgreSQL; every other is refused, by both."""

from itertools import product

import psycopg
import pytest
from psycopg.errors import CheckViolation

from interlock.workers.runtime import Runtime
from interlock.workflows.catalogue import catalogue
from interlock.workflows.definition import Definition
from tests.walking import Walker

pytestmark = pytest.mark.integration
Dba = psycopg.Connection
DELIVERY = {"story", "sprint", "pr_review", "approval"}  # theirs: test_engine, test_approvals, test_database_refuses
every = pytest.mark.parametrize(
    "definition",
    [each for each in catalogue() if each.type not in DELIVERY],
    ids=lambda each: f"{each.type}-{each.version}",
)
EVENT = """
INSERT INTO workflow_transitions (id, workflow_id, seq, workflow_type, definition_version, from_state, to_state,
                                  trigger)
VALUES (gen_random_uuid(), %s, %s, %s, %s, %s, %s, %s)"""


@pytest.fixture
def walker(runtime: Runtime, dba: "Dba[tuple[object, ...]]") -> Walker:
    return Walker(runtime, dba)


@every
def test_every_move_is_made_with_its_severity_and_what_its_event_must_say(
    walker: Walker, definition: Definition
) -> None:
    for move in definition.transitions:
        for source in move.sources:
            event = walker.go(definition, walker.at(definition, source), move)
            assert event["from_state"] == source
            assert event["severity"] == move.severity
            assert set(definition.required_metadata) <= set(event["metadata"]), (source, move.trigger)


@every
def test_postgresql_refuses_every_other_move(walker: Walker, definition: Definition) -> None:
    for state in definition.states:
        made = walker.at(definition, state)
        row = walker.dba.execute("SELECT version FROM workflow_instances WHERE id = %s", (made,)).fetchone()
        assert row is not None
        legal = {(move.trigger, move.dest) for move in definition.transitions if state in move.sources}
        for trigger, dest in product(definition.triggers, definition.states):
            if (trigger, dest) in legal:
                continue
            given = (made, row[0] + 1, definition.type, definition.version, state, dest, trigger)
            with pytest.raises(CheckViolation, match="illegal move"):
                walker.dba.execute(EVENT, given)
