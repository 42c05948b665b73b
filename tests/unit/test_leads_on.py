"""Every state of every machine leads on, whatever dies there; and what a person is told to fire leads to an end."""

import shlex

import pytest

from docs.leads_on import NoWayOn, leads
from docs.stuck_samples import sample
from interlock.workers.operations.stuck.detector import why
from interlock.workers.settings import Settings
from interlock.workflows.by_hand import move_by_hand
from interlock.workflows.catalogue import catalogue
from interlock.workflows.definition import Deadline, Definition, T
from tests.small_machines import small_machine

SETTINGS = Settings.model_construct()
NEWEST = [*catalogue().newest.values()]
WAITING = [(each, state) for each in NEWEST for state in each.states if state not in each.terminal]
names = [f"{each.type}-{state}" for each, state in WAITING]


def machine(*moves: object, **more: object) -> Definition:
    """A machine of yours that may hang in `waiting`."""
    given = {"states": ("waiting", "done"), "initial": "waiting", "terminal": frozenset({"done"}), **more}
    return Definition(type="mine", version="1.0.0", summary="Mine.", transitions=moves, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(("definition", "state"), WAITING, ids=names)
def test_each_state_leads_on_whatever_dies_there(definition: Definition, state: str) -> None:
    found = leads(definition, state, SETTINGS)
    assert {"the node that applies its triggers", "the relay"} < {lead.part for lead in found}
    assert all(lead.answer for lead in found)


@pytest.mark.parametrize(("definition", "state"), WAITING, ids=names)
@pytest.mark.promise("O14")
def test_what_is_offered_holds_only_for_what_it_was_offered_for(definition: Definition, state: str) -> None:
    command = why(sample(definition, state)).command
    if command.startswith(
        ("interlock fire", "interlock override", "interlock phase", "interlock worker", "interlock breaker reset")
    ):
        assert {"--if-version", "--if-silent"} & {*shlex.split(command)}, command


def test_a_state_that_only_an_effect_nobody_asks_for_leaves_is_told() -> None:
    with pytest.raises(NoWayOn, match="no effect tells `found` of a mine that is waiting"):
        leads(machine(T("found", "waiting", "done", by="effect")), "waiting", SETTINGS)


def test_a_state_that_only_a_silent_holder_leaves_is_told_and_a_deadline_mends_it() -> None:
    move = T("finish", "waiting", "done", by="holder")
    with pytest.raises(NoWayOn, match=r"mine 1\.0\.0 that is waiting: `interlock show ID` only looks"):
        leads(machine(move), "waiting", SETTINGS)
    late = T("give_up", "waiting", "done", by="machinery")
    mended = machine(move, late, deadlines={"waiting": Deadline(60.0, "give_up")})
    assert any("`give_up`" in lead.answer for lead in leads(mended, "waiting", SETTINGS))


def test_a_limit_that_is_switched_off_leaves_a_state_without_a_way_on() -> None:
    unlimited = Settings.model_construct(stuck_seconds=0.0)
    with pytest.raises(NoWayOn, match="may stay analysis for ever"):
        leads(catalogue().get("story"), "analysis", unlimited)


@pytest.mark.parametrize(("definition", "state"), WAITING, ids=names)
def test_what_a_person_is_told_to_fire_never_leads_in_a_circle(definition: Definition, state: str) -> None:
    seen = [state]
    while (move := move_by_hand(definition, seen[-1])) and move.dest not in definition.terminal | definition.resting:
        assert move.dest not in seen
        seen.append(move.dest)


def test_a_person_is_told_what_goes_well_and_what_ends_badly_only_as_the_last_resort() -> None:
    def told(type_: str, state: str) -> str | None:
        move = move_by_hand(catalogue().get(type_), state)
        return move and move.trigger

    assert told("pr_review", "reviewing") == "approve"
    assert told("story", "review") == "approve"
    assert told("supervised_worker", "PAUSED") == "resume"
    assert told("supervised_worker", "RUNNING") == "terminate"
    assert told("narrowing", "proposed") == "enforce"
    assert told("patch_ledger", "queued") is None


def test_an_end_that_several_states_can_come_to_is_the_last_resort_of_a_machine_that_gives_no_severities() -> None:
    paper = small_machine(
        "paper",
        "A paper, from a draft to its print.",
        "draft review | printed withdrawn",
        T("withdraw", ("draft", "review"), "withdrawn"),
        T("hand_in", "draft", "review"),
        T("print", "review", "printed"),
    )
    assert [(move := move_by_hand(paper, state)) and move.trigger for state in ("draft", "review")] == [
        "hand_in",
        "print",
    ]
