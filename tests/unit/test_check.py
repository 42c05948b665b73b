"""A definition that contradicts itself is refused before anything is built on it, with its reason."""

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from interlock import ApprovalPoint, Deadline, Effect, Guard, T
from interlock.workflows.backoff import Growth
from interlock.workflows.catalogue import Catalogue, catalogue
from interlock.workflows.definition import Field, FollowUp, Link, Relink
from interlock.workflows.errors import InvalidDefinition, UnknownTrigger, UnknownWorkflow
from interlock.workflows.versioning.validate import check
from tests.small_machines import small_machine

PRESS, RELEASE, FALL = T("press", "off", "on"), T("release", "on", "off"), T("fall", ("off", "on"), "broken")
SOUND = small_machine("lamp", "A lamp.", "off on | broken", PRESS, RELEASE, FALL, order=(("off", "on"), ("broken",)))
ALLOWED = Guard("allowed", lambda case: case.by == "ann", "only ann")


def with_move(*moves: Any) -> dict[str, Any]:
    return {"transitions": SOUND.transitions + moves}


def with_deadline(deadline: Deadline) -> dict[str, Any]:
    return {"deadlines": MappingProxyType({"on": deadline})}


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "a name with a space": ({"type": "a lamp"}, r"'a lamp' is not a name"),
    "a name too long": ({"states": ("off", "on", "broken", "x" * 101)}, "is not a name"),
    "an event's name in capitals": (
        with_move(T("dim", "on", "off", event="Dimmed")),
        "'Dimmed' is no name of an event",
    ),
    "an event's name that is a type": ({"events": {"on": "lamp_state_transition"}}, "is no name of an event"),
    "a name for events that enter no state": ({"events": {"half": "halved"}}, "the events of 'half' have a name, but"),
    "a change of no link": (
        with_move(T("plug", "on", "on", relink=Relink("socket"))),
        "'plug' changes 'socket', which",
    ),
    "a guard's name with an operator": (
        with_move(T("dim", "on", "off", when=(replace(ALLOWED, name="g || call() //"),))),
        r"the guard 'g \|\| call\(\) //' has no valid name",
    ),
    "a guard's name of two lines": (
        with_move(T("dim", "on", "off", when=(replace(ALLOWED, name="g\nend"),))),
        r"test_check.py:\d+: the guard 'g\\nend' has no valid name",
    ),
    "a version of two numbers": ({"version": "1.0"}, "not MAJOR.MINOR.PATCH"),
    "a state twice": ({"states": ("off", "on", "broken", "on")}, "a state is listed twice"),
    "an unknown initial state": ({"initial": "dim"}, "initial state 'dim' is not among the states"),
    "an unknown terminal state": ({"terminal": frozenset({"broken", "lost"})}, "terminal state 'lost' is not among"),
    "an unknown destination": (with_move(T("dim", "on", "half")), "'dim' names the unknown state 'half'"),
    "an unknown source": (with_move(T("dim", "half", "on")), "'dim' names the unknown state 'half'"),
    "every source": (with_move(T("kick", "*", "broken")), r"'kick' names the unknown state '\*'"),
    "a way out of a terminal state": (with_move(T("mend", "broken", "off")), "leaves the terminal state 'broken'"),
    "an exception nobody answers for": (
        with_move(T("mend", "broken", "off", exceptional=True)),
        "leaves the terminal state 'broken' under nobody's authority",
    ),
    "an unknown authority": (
        with_move(T("dim", "on", "off", by="boss")),
        "'dim' may be fired by 'boss', which is none",
    ),
    "an authority twice": (with_move(T("dim", "on", "off", by=("holder", "holder"))), "'dim' lists 'holder' twice"),
    "a deadline that is closed to it": (
        with_move(T("dim", "on", "off", by="operator")) | with_deadline(Deadline(60, "dim")),
        "the deadline of 'on' fires 'dim', which is open to operator only: add 'machinery'",
    ),
    "an effect's outcome that anyone may report": (
        with_move(T("dim", "off", "on", effects=(Effect("notice", done="release"),))),
        "effect 'notice' of 'dim' reports 'release', which anyone may fire",
    ),
    "an effect's outcome that is closed to it": (
        with_move(
            T("dim", "off", "on", effects=(Effect("notice", failed="fail"),)), T("fail", "on", "off", by="machinery")
        ),
        "effect 'notice' of 'dim' reports 'fail', which is open to machinery only: add 'effect'",
    ),
    "the outcome of a birth's effect that anyone may report": (
        {"birth_effects": (Effect("notice", done="press"),)},
        "effect 'notice' of 'birth' reports 'press', which anyone may fire",
    ),
    "a trigger whose authorities depend on the state": (
        with_move(T("dim", "on", "off", by="operator"), T("dim", "off", "on", by="machinery")),
        "'dim' is open to operator in 'on', elsewhere to machinery: let it be one",
    ),
    "no source": (with_move(T("dim", (), "on")), "lists no source, or one twice"),
    "a source twice": (with_move(T("dim", ("off", "off"), "on")), "lists no source, or one twice"),
    "a severity that there is not": (
        with_move(T("dim", "on", "off", severity="warn")),  # type: ignore[arg-type] # as a user may
        "the severity of 'dim' is 'warn', which is none of info, warning, error, critical",
    ),
    "a move that can never be made": (with_move(T("fall", "off", "broken")), "hides those after it"),
    "a destination that is hidden": (with_move(T("press", "off", "broken")), "hides those after it"),
    "a state nobody reaches": ({"states": ("off", "on", "broken", "dim")}, "state 'dim' cannot be reached"),
    "a dead end": (
        {"states": ("off", "on", "broken", "stuck"), **with_move(T("jam", "on", "stuck"))},
        "state 'stuck' is a dead end but not terminal",
    ),
    "a follow-up on no link": (
        with_move(T("dim", "on", "off", then=(FollowUp("room", "darken"),))),
        "follows up on 'room', which is not a link",
    ),
    "a quorum of none": (with_move(T("dim", "on", "off", approval=ApprovalPoint(quorum=0))), "a quorum below one"),
    "more votes than deciders": (
        with_move(T("dim", "on", "off", approval=ApprovalPoint(3, ("bob", "cyd")))),
        "asks for a quorum of 3, but names 2 deciders",
    ),
    "a decider twice": (
        with_move(T("dim", "on", "off", approval=ApprovalPoint(1, ("bob", "bob")))),
        "names a decider twice",
    ),
    "a decider that is no name": (
        with_move(T("dim", "on", "off", approval=ApprovalPoint(1, (" bob",)))),
        "names deciders that are no tuple of names",
    ),
    "deciders that are one text": (
        with_move(T("dim", "on", "off", approval=ApprovalPoint(1, "bob"))),  # type: ignore[arg-type] # as a user may
        "names deciders that are no tuple of names",
    ),
    "an effect that reports what is illegal": (
        with_move(T("dim", "on", "off", effects=(Effect("notice", done="release"),))),
        "reports 'release', illegal in 'off'",
    ),
    "a deadline that fires what is illegal": (with_deadline(Deadline(60, "press")), "fires 'press', which is illegal"),
    "a deadline in the past": (with_deadline(Deadline(0, "release")), "not in the future"),
    "a deadline that an unchecked field says": (
        with_deadline(Deadline(60, "release", context_key="patience")),
        "comes from 'patience', which is not a field",
    ),
    "a deadline capped below its first": (
        with_deadline(Deadline(60, "release", growth=Growth("count", cap_seconds=30))),
        "capped below where it begins",
    ),
}


BOUND = Guard("so_often", lambda case: True, "used up", bounds=True)
FORWARD = (("off",), ("on",), ("broken",))


def test_a_move_to_an_earlier_level_says_why_it_may() -> None:
    with pytest.raises(InvalidDefinition, match=r"'release' goes back from 'on' to 'off' and does not say why"):
        check(replace(SOUND, order=FORWARD))
    press, release, fall = SOUND.transitions
    sent_back = (press, replace(release, back="rework"), fall)
    assert check(replace(SOUND, order=FORWARD, transitions=sent_back)) == []
    with pytest.raises(InvalidDefinition, match="'press' says that it goes back, and goes on"):
        check(replace(SOUND, order=FORWARD, transitions=(replace(press, back="rework"), *sent_back[1:])))


def test_a_retry_is_bounded_by_a_guard_somewhere_on_its_way_round() -> None:
    press, release, fall = SOUND.transitions
    again = replace(release, back="retry")
    with pytest.raises(InvalidDefinition, match="'release' tries again from 'on', and no guard bounds how often"):
        check(replace(SOUND, order=FORWARD, transitions=(press, again, fall)))
    for moves in ((press, replace(again, when=(BOUND,)), fall), (replace(press, when=(BOUND,)), again, fall)):
        assert check(replace(SOUND, order=FORWARD, transitions=moves)) == []
    with pytest.raises(InvalidDefinition, match="no guard bounds"):  # there is another way round
        check(
            replace(
                SOUND, order=FORWARD, transitions=(replace(press, when=(BOUND,)), T("turn", "off", "on"), again, fall)
            )
        )


@pytest.mark.parametrize(
    ("order", "says"),
    [
        ((("off", "on"),), "do not agree on 'broken'"),
        ((("off", "on"), ("broken", "lost")), "do not agree on 'lost'"),
        ((("off", "on"), ("broken", "off")), "has a state twice"),
    ],
)
def test_an_order_has_every_state_once(order: Any, says: str) -> None:
    with pytest.raises(InvalidDefinition, match=says):
        check(replace(SOUND, order=order))


def test_a_machine_that_goes_round_without_an_order_is_doubtful() -> None:
    (doubt,) = check(replace(SOUND, order=()))
    assert doubt.startswith("it can come back to 'off', and declares no order of its states")
    assert check(replace(SOUND, order=(), transitions=(SOUND.transitions[0], SOUND.transitions[2]))) == []


def test_a_sound_definition_has_nothing_to_say() -> None:
    assert check(SOUND) == []


@pytest.mark.parametrize("bad", BAD, ids=[name.replace(" ", "-") for name in BAD])
def test_a_definition_that_contradicts_itself_is_refused_with_its_reason(bad: str) -> None:
    changed, reason = BAD[bad]
    with pytest.raises(InvalidDefinition, match=reason):
        check(replace(SOUND, **changed))


def test_everything_wrong_is_named_at_once() -> None:
    with pytest.raises(InvalidDefinition, match=r"lamp 1\.0 is invalid: .*MAJOR.*; .*'dim' is not among"):
        check(replace(SOUND, version="1.0", initial="dim"))


def test_an_exception_that_is_guarded_may_leave_a_terminal_state() -> None:
    assert (
        check(replace(SOUND, **with_move(T("mend", "broken", "off", when=(ALLOWED,), exceptional=True, back="rework"))))
        == []
    )


def test_a_machine_may_never_end() -> None:
    for_ever = SOUND.transitions[:2]
    assert (
        check(replace(SOUND, states=("off", "on"), order=(("off", "on"),), terminal=frozenset(), transitions=for_ever))
        == []
    )


def test_a_deadline_may_be_said_by_a_field() -> None:
    patience = Field("patience", lambda value: value != 0, "not 0")
    said = with_deadline(Deadline(60, "release", context_key="patience"))
    assert check(replace(SOUND, fields=(patience,), **said)) == []


def test_guarded_alternatives_hide_nothing() -> None:
    assert check(replace(SOUND, transitions=(T("press", "off", "broken", when=(ALLOWED,)), *SOUND.transitions))) == []


def test_what_is_shipped_is_sound_and_undoubted() -> None:
    assert catalogue().warnings == []


def test_a_links_role_makes_a_follow_up_legal() -> None:
    linked = replace(
        SOUND,
        links=(Link("room", type="room", context_key="room_id", inverse="lamp"),),
        **with_move(T("dim", "on", "off", then=(FollowUp("room", "darken"),))),
    )
    assert check(linked) == []


def test_new_instances_get_the_newest_version_by_number_not_by_letter() -> None:
    versions = Catalogue(replace(SOUND, version=version) for version in ("1.10.0", "1.9.0", "0.11.0"))
    assert versions.get("lamp").version == "1.10.0"
    assert versions.get("lamp", "0.11.0").version == "0.11.0"


def test_what_is_not_defined_is_refused_naming_what_is() -> None:
    with pytest.raises(UnknownWorkflow, match=r"'epic'.*approval, .*pr_review, .*sprint, .*story"):
        catalogue().get("epic")
    with pytest.raises(UnknownWorkflow, match=r"'9\.9\.9' of 'story'.*1\.0\.0"):
        catalogue().get("story", "9.9.9")
    with pytest.raises(UnknownTrigger, match=r"no trigger 'fly'.*press, release, fall"):
        SOUND.require_trigger("fly")


def test_a_users_module_adds_its_definitions_to_the_shipped_ones() -> None:
    both = catalogue(("tests.machines",))
    assert both.get("turnstile").initial == "shut"
    assert both.get("story").initial == "analysis"


@pytest.mark.parametrize("module", ["no_such_module_anywhere", "tests.waiting"])
def test_a_module_without_definitions_is_refused_by_name(module: str) -> None:
    with pytest.raises(InvalidDefinition, match=rf"INTERLOCK_DEFINITIONS names '{module}'"):
        catalogue((module,))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x = 1\nraise KeyError('boom')\n", r"broken\.py:2: KeyError: 'boom'"),
        ("\nx = (\n", r"broken\.py:2: SyntaxError: '\(' was never closed"),
        ("import no_such_thing\n", r"broken\.py:1: ModuleNotFoundError: No module named 'no_such_thing'"),
    ],
)
def test_a_module_that_fails_is_refused_with_its_file_and_line(
    text: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InvalidDefinition, match=f"'broken', which cannot be imported: .*{why}"):
        catalogue(("broken",))


def test_events_that_enter_a_state_have_its_name_unless_their_transition_has_one_or_they_stay_there() -> None:
    """EVENT-17."""
    stays, own = T("flicker", "broken", "broken"), T("drop", "on", "broken", event="lamp_dropped")
    lamp = replace(SOUND, events={"broken": "lamp_broken"}, transitions=(*SOUND.transitions, stays, own))
    assert {move.trigger: move.event for move in lamp.transitions} == {
        "press": "",
        "release": "",
        "fall": "lamp_broken",
        "flicker": "",
        "drop": "lamp_dropped",
    }
