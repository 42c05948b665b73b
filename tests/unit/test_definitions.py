"""Every move of every machine: those it has are made, all others are refused with what would be legal."""

from itertools import product
from typing import Any

import pytest

from interlock.workflows.catalogue import catalogue
from interlock.workflows.decide import decide
from interlock.workflows.definition import Definition, Field, Guard, T
from interlock.workflows.outcomes import Applied, Rejected, Waiting
from interlock.workflows.versioning.validate import check
from tests.property.model import ASK_FIRST, BEGINS, MOVES
from tests.unit.cases import favourable

ENDS = {"story": {"done"}, "sprint": {"done"}, "pr_review": {"merged"}, "approval": {"approved", "rejected", "expired"}}
SAID = {
    type_: (BEGINS[type_], ends, {(trigger, source, dest) for (source, trigger), dest in MOVES[type_].items()})
    for type_, ends in ENDS.items()
}

definitions = list(catalogue())
named = [f"{each.type}-{each.version}" for each in definitions]
every = pytest.mark.parametrize("definition", definitions, ids=named)


def test_the_shipped_machines_are_those_the_decisions_name() -> None:
    shipped = {
        each.type: (
            each.initial,
            set(each.terminal),
            {(move.trigger, source, move.dest) for move in each.transitions for source in move.sources},
        )
        for each in catalogue().newest.values()
        if each.type in SAID  # the others: test_move_tables
    }
    begins, ends, moves = SAID["approval"]
    said = SAID | {"approval": (begins, ends, moves | {("approve", "pending", "pending")})}  # a vote below the quorum
    assert shipped == said


def test_approval_points_are_those_of_the_decision() -> None:
    points = {(each.type, move.trigger) for each in definitions for move in each.transitions if move.approval}
    assert points == ASK_FIRST


@every
def test_every_move_a_machine_has_is_made(definition: Definition) -> None:
    for (trigger, source), moves in definition.moves.items():
        outcome = decide(definition, favourable(definition, source, trigger))
        assert isinstance(outcome, Applied), (trigger, source, outcome)
        assert (outcome.dest, outcome.transition) == (moves[0].dest, moves[0])
        declared = definition.deadlines.get(outcome.dest)
        assert outcome.deadline == (declared and declared.resolved({}))


@every
def test_every_move_a_machine_lacks_is_refused_with_what_would_be_legal(definition: Definition) -> None:
    for state, trigger in product(definition.states, (*definition.triggers, "no_such_trigger")):
        if (trigger, state) in definition.moves:
            continue
        outcome = decide(definition, favourable(definition, state, trigger))
        assert isinstance(outcome, Rejected), (state, trigger, outcome)
        assert outcome.reason["code"] == "no_such_transition"
        assert outcome.reason["state"] == state
        assert outcome.reason["legal"] == [each for each in definition.triggers if (each, state) in definition.moves]


@every
def test_a_terminal_state_answers_to_nothing_but_declared_exceptions(definition: Definition) -> None:
    exceptions = {
        (move.trigger, source) for move in definition.transitions if move.exceptional for source in move.sources
    }
    answered = {(trigger, state) for state in definition.terminal for trigger in definition.legal(state)}
    assert answered == exceptions


@every
def test_a_trigger_at_an_approval_point_is_held_until_it_is_granted(definition: Definition) -> None:
    for (trigger, source), moves in definition.moves.items():
        outcome = decide(definition, favourable(definition, source, trigger, granted=False))
        held = isinstance(outcome, Waiting) and outcome.approval == moves[0].approval
        assert held == (moves[0].approval is not None), (trigger, source, outcome)


@every
def test_each_trigger_looks_up_exactly_what_its_guards_read(definition: Definition) -> None:
    for move in definition.transitions:
        wanted = frozenset().union(*(guard.needs for guard in move.when))
        assert wanted <= definition.needs[move.trigger]
        assert ("held" in definition.needs[move.trigger]) >= (move.approval is not None)


@pytest.mark.parametrize(
    ("context", "wrong"),
    [
        (
            {"sprint_ids": "SP-1"},
            (
                "sprint_ids is no field (did you mean sprint_id?)",
                "a key of your own needs another name",
            ),
        ),
        (
            {"sprnt_id": "SP-1"},
            (
                "sprnt_id is no field (did you mean sprint_id?)",
                "a key of your own needs another name",
            ),
        ),
        ({"sprint_id": "SP-1", "sprint_ids": "mine"}, ()),
        ({"sprint": "mine", "title": "mine", "x" * 10_000: 1}, ()),
        ({f"sprint_i{each}": each for each in "abcefghijklmn"}, None),
    ],
)
def test_a_key_that_is_most_likely_a_misspelt_one_is_refused(
    context: dict[str, object], wrong: tuple[str, ...] | None
) -> None:
    """MACHINE-12."""
    found = catalogue().get("story").wrong_fields(context)
    assert len(found) == 11 if wrong is None else found == wrong
    assert catalogue().get("story").undeclared(context.keys()) == context.keys() - {"sprint_id"}


def test_a_context_that_is_read_and_not_declared_is_doubtful() -> None:
    """MACHINE-12."""
    reads = Guard("reads", lambda case: any(each for each in [case.context.get("author")]), "it needs an author")
    blind = Guard("blind", lambda case: case.by == "ann", "only ann")

    def paper(guard: Guard, **more: Any) -> list[str]:
        moves = (T("print", "draft", "printed", when=(guard,)),)
        states: dict[str, Any] = {
            "initial": "draft",
            "terminal": frozenset({"printed"}),
            "states": ("draft", "printed"),
        }
        return check(Definition(type="paper", version="1.0.0", summary="Paper.", transitions=moves, **states, **more))

    (warning,) = paper(reads)
    assert "its context is read by guard 'reads', but nothing of it is declared" in warning
    assert paper(blind) == paper(reads, fields=(Field("author", bool, "a name"),)) == []
