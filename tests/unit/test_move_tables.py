"""The shipped machines are those written out by hand: no move more, none less, none more or less severe."""

from itertools import pairwise, product

import pytest

from interlock.workflows.catalogue import catalogue
from interlock.workflows.decide import decide
from interlock.workflows.definition import Definition
from interlock.workflows.outcomes import Applied, Rejected
from interlock.workflows.versioning.export import recorded
from tests.unit.cases import favourable
from tests.unit.forbidden_moves import FORBIDDEN, FORBIDDEN_0_1
from tests.unit.move_tables import OTHERWISE_SEVERE, REQUIRED_METADATA, TABLES, Table

DELIVERY = {"story", "sprint", "pr_review", "approval"}
PARTS = [
    pytest.param(catalogue().get(*key), table, id=f"{'-'.join(key)} as in {table.source}")
    for key, table in TABLES.items()
]
every = pytest.mark.parametrize(("definition", "table"), PARTS)


def pairs(definition: Definition) -> dict[tuple[str, str], set[str]]:
    """(source, destination) -> the triggers that lead there."""
    found: dict[tuple[str, str], set[str]] = {}
    for move in definition.transitions:
        for source in move.sources:
            found.setdefault((source, move.dest), set()).add(move.trigger)
    return found


def forbidden() -> list[tuple[Definition, str, str]]:
    """(definition, source, destination) of every move that is forbidden by name, in each version it speaks of."""
    listed = []
    for definition in catalogue():
        oldest = definition.version == "0.1.0"
        text = {"workstream": FORBIDDEN_0_1}.get(definition.type, "") if oldest else FORBIDDEN.get(definition.type, "")
        for line in text.split("\n"):
            source, arrow, dest = line.strip().partition(" -> ")
            if arrow and source in definition.states:
                listed += [(definition, source, each) for each in (definition.states if dest == "*" else (dest,))]
    return listed


def test_every_type_and_version_of_the_tables_is_shipped_and_nothing_else() -> None:
    shipped = {(each.type, each.version) for each in catalogue() if each.type not in DELIVERY}
    assert shipped == set(TABLES)


@pytest.mark.parametrize(
    ("type_", "newest"), [("task", "1.1.0"), ("workstream", "1.1.0"), ("worker", "1.1.0"), ("step", "0.1.0")]
)
def test_new_instances_get_the_newest_of_a_lineage(type_: str, newest: str) -> None:
    assert catalogue().get(type_).version == newest


@every
def test_a_machine_has_its_tables_states_begins_with_the_first_and_ends_where_they_end(
    definition: Definition, table: Table
) -> None:
    assert set(definition.states) == set(table.states)
    assert len(definition.states) == len(table.states)
    assert definition.initial == table.states[0]
    assert definition.terminal == table.terminal


@every
def test_a_machine_has_its_tables_moves_and_no_other(definition: Definition, table: Table) -> None:
    assert set(pairs(definition)) == set(table.pairs)


@every
def test_a_move_answers_to_the_triggers_its_table_names_and_to_one_where_it_names_none(
    definition: Definition, table: Table
) -> None:
    for pair, named in table.pairs.items():
        triggers = pairs(definition)[pair]
        assert (triggers == named) if named else (len(triggers) == 1), pair


@every
def test_a_move_is_as_severe_as_its_table_says(definition: Definition, table: Table) -> None:
    for move in definition.transitions:
        for source in move.sources:
            said = OTHERWISE_SEVERE.get((definition.type, move.trigger, source), table.severities[source, move.dest])
            assert move.severity == said, (move.trigger, source)


@every
def test_no_trigger_takes_a_machine_where_its_table_does_not(definition: Definition, table: Table) -> None:
    for state, trigger in product(definition.states, definition.triggers):
        outcome = decide(definition, favourable(definition, state, trigger))
        if isinstance(outcome, Applied):
            assert (state, outcome.dest) in table.pairs, (state, trigger)
        else:
            assert isinstance(outcome, Rejected)


@pytest.mark.parametrize(
    ("definition", "source", "dest"),
    [pytest.param(*each, id=f"{each[0].type}-{each[0].version}: {each[1]} to {each[2]}") for each in forbidden()],
)
def test_what_is_forbidden_is_refused_saying_where_it_stands_and_what_is_legal(
    definition: Definition, source: str, dest: str
) -> None:
    leading_there = {move.trigger for move in definition.transitions if move.dest == dest}
    for trigger in leading_there:
        outcome = decide(definition, favourable(definition, source, trigger))
        if isinstance(outcome, Applied):  # the same trigger, to where it does lead from here
            assert outcome.dest != dest
            continue
        assert isinstance(outcome, Rejected)
        assert outcome.reason["message"] == f"{definition.type} in state {source!r} does not answer to {trigger!r}"
        assert outcome.reason["legal"] == list(definition.legal(source))
    assert (source, dest) not in pairs(definition)


def test_so_many_moves_are_forbidden_by_name() -> None:
    assert len(forbidden()) > 100  # the parametrisation above is not empty for want of a spelling


@every
def test_events_of_a_machine_say_what_the_ssot_requires_of_them(definition: Definition, table: Table) -> None:
    required = REQUIRED_METADATA.get(definition.type, set()) if definition.version >= "1.0.0" else set()
    assert set(definition.required_metadata) == required
    assert recorded(definition).get("required_metadata", []) == list(definition.required_metadata)


@every
def test_a_terminal_state_is_left_only_by_an_exception_that_somebody_answers_for(
    definition: Definition, table: Table
) -> None:
    left = {(move.trigger, source) for move in definition.transitions for source in move.sources}
    exceptions = {(trigger, source) for trigger, source in left if source in definition.terminal}
    ruled = {("roll_back", "committed"), ("drop", "quarantined")} if definition.type == "patch_ledger" else set()
    assert exceptions == ruled
    for trigger, source in ruled:
        nobody = favourable(definition, source, trigger, metadata={"authorized_by": ""})
        outcome = decide(definition, nobody)
        assert isinstance(outcome, Rejected)
        assert outcome.reason["missing"] == ["authorized"]


@pytest.mark.parametrize("type_", ["task", "workstream", "worker", "run", "patch_ledger"])
def test_1_1_0_only_adds_to_1_0_0(type_: str) -> None:
    older, newer = (catalogue().get(type_, version) for version in ("1.0.0", "1.1.0"))
    assert set(pairs(older)) <= set(pairs(newer))
    for pair, triggers in pairs(older).items():
        assert triggers <= pairs(newer)[pair]


@pytest.mark.parametrize("type_", ["task", "workstream", "run"])
def test_what_has_not_ended_can_be_cancelled(type_: str) -> None:
    newest = catalogue().get(type_)
    for state in set(newest.states) - newest.terminal:
        outcome = decide(newest, favourable(newest, state, "cancel"))
        assert isinstance(outcome, Applied)
        assert outcome.dest in ("cancelled", "canceled")


def test_a_tasks_life_with_two_failures_is_the_ssots() -> None:
    task = catalogue().get("task")
    life = ["scheduler_assigned", "worker_started"]
    life += ["execution_failed", "retry_delay_elapsed", "worker_started"] * 2
    life += ["execution_completed", "validation_passed"]
    states = [task.initial]
    for trigger in life:
        outcome = decide(task, favourable(task, states[-1], trigger))
        assert isinstance(outcome, Applied)
        states.append(outcome.dest)
    again = ["running", "retrying", "queued"]
    assert states == ["pending", "queued", *again, *again, "running", "validating", "completed"]
    assert all(pair in pairs(task) for pair in pairwise(states))
