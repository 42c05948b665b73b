"""Every move of every machine is made by the engine and kept by PostgreSQL; every other is refused, by both."""

from itertools import chain, count, product
from uuid import UUID

import psycopg
import pytest

from interlock.workers.runtime import Runtime
from interlock.workflows.catalogue import catalogue
from interlock.workflows.definition import Definition
from tests.walking import Walker, path

pytestmark = pytest.mark.integration
Dba = psycopg.Connection
DELIVERY = {"story", "sprint", "pr_review", "approval"}  # theirs: test_engine, test_approvals, test_database_refuses
every = pytest.mark.parametrize(
    "definition",
    [pytest.param(each, id=f"{each.type}-{each.version}") for each in catalogue() if each.type not in DELIVERY],
)
# What PostgreSQL says of an event. A function, because there are up to a thousand moves to a machine.
ANSWERS = """
CREATE FUNCTION pg_temp.answer(
    workflow uuid, seq integer, type text, version text, source text, dest text, trigger text
) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO workflow_transitions (id, workflow_id, seq, workflow_type, definition_version, from_state, to_state,
                                      trigger)
    VALUES (gen_random_uuid(), workflow, seq, type, version, source, dest, trigger);
    RETURN 'kept';
EXCEPTION WHEN check_violation THEN
    RETURN SQLERRM;
END $$"""
ANSWER = """
SELECT trigger, dest, pg_temp.answer(id, version + 1, workflow_type, definition_version, current_state, dest, trigger)
  FROM workflow_instances, unnest(%s::text[], %s::text[]) AS move (trigger, dest) WHERE id = %s"""


@pytest.fixture
def walker(runtime: Runtime, dba: "Dba[tuple[object, ...]]") -> Walker:
    return Walker(runtime, dba)


@every
def test_every_move_is_made_with_its_severity_and_what_its_event_must_say_and_every_other_is_refused(
    walker: Walker, definition: Definition
) -> None:
    walker.dba.execute(ANSWERS)
    reached = {definition.initial: walker.born(definition)}  # each state by the shortest way, as `Walker.at` goes
    for source in sorted(definition.states, key=lambda state: len(path(definition, state))):
        _assert_every_other_move_refused(walker, definition, reached[source], source)
        moves = [move for move in definition.transitions if source in move.sources]
        instances = chain([reached[source]], (walker.at(definition, source) for _ in count()))
        for move, made in zip(moves, instances, strict=False):
            event = walker.go(definition, made, move)
            assert event["from_state"] == source
            assert event["severity"] == move.severity
            assert set(definition.required_metadata) <= set(event["metadata"]), (source, move.trigger)
            if [*path(definition, source), move] == path(definition, move.dest):
                reached[move.dest] = made


def _assert_every_other_move_refused(walker: Walker, definition: Definition, made: UUID, state: str) -> None:
    """By PostgreSQL, of an instance in this state."""
    legal = {(move.trigger, move.dest) for move in definition.transitions if state in move.sources}
    others = [each for each in product(definition.triggers, definition.states) if each not in legal]
    if not others:  # a machine of one move
        return
    answers = walker.dba.execute(ANSWER, (*map(list, zip(*others, strict=True)), made)).fetchall()
    assert [tuple(each[:2]) for each in answers] == others
    assert [each for each in answers if "illegal move" not in str(each[2])] == []
