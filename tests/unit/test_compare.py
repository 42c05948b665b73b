"""What differs between two versions, and the number it asks for (VERSION-4); what the lock says of both."""

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from interlock.workflows.catalogue import catalogue
from interlock.workflows.definition import Deadline, Definition, Field, FollowUp, Link, Relink, T
from interlock.workflows.errors import BadInput
from interlock.workflows.versioning.diff import compare, numbers, raised
from interlock.workflows.versioning.export import checksum, public, recorded
from interlock.workflows.versioning.lock import complaints, misnumbered, read, written

STORY, TASK, JOB = (catalogue().get(each) for each in ("story", "task", "job"))
FIELD = Field("points", lambda value: True, "points")
LINK = Link("epic", type="story", context_key="epic_id", inverse="stories")
LINKED = replace(STORY, links=(LINK,), fields=(FIELD,), required_metadata=("points",))
TIMED = replace(STORY, deadlines=MappingProxyType({"blocked": Deadline(60, "unblock")}))


def changed(old: Definition, **said: Any) -> tuple[Definition, Definition]:
    return old, replace(old, **said)


def first(**said: Any) -> tuple[Definition, Definition]:
    one, *others = STORY.transitions
    return changed(STORY, transitions=(replace(one, **said), *others))


def swapped(trigger: str) -> tuple[Definition, Definition]:
    """The guards of the first two ways of a task's trigger change places."""
    first, second = [move for move in TASK.transitions if move.trigger == trigger]
    other = {first: replace(first, when=second.when), second: replace(second, when=first.when)}
    return changed(TASK, transitions=tuple(other.get(move, move) for move in TASK.transitions))


def regrouped(trigger: str, *sources: tuple[str, ...]) -> tuple[Definition, Definition]:
    """The same moves of a job, served by other rules."""
    given = iter(sources)
    moves = (replace(move, sources=next(given)) if move.trigger == trigger else move for move in JOB.transitions)
    return changed(JOB, transitions=tuple(moves))


CASES: dict[str, tuple[tuple[Definition, Definition], str, str]] = {
    "a right is taken away": (
        first(by=("operator",)),
        "MAJOR",
        "design_complete (analysis → design) by anyone → operator",
    ),
    "a right is given": (
        first(by=("operator",))[::-1],
        "MINOR",
        "design_complete (analysis → design) by operator → anyone",
    ),
    "a move's events get a name": (
        first(event="designed"),
        "MINOR",
        "event of design_complete (analysis → design): none",
    ),
    "a name is taken away": (
        first(event="designed")[::-1],
        "MAJOR",
        "event of design_complete (analysis → design): des",
    ),
    "another name is given": (
        (first(event="designed")[1], first(event="drawn")[1]),
        "MAJOR",
        "event of design_complete (analysis → design): designed → drawn",
    ),
    "a right is exchanged": (
        (first(by=("operator",))[1], first(by=("machinery",))[1]),
        "MAJOR",
        "design_complete (analysis → design) by operator → machinery",
    ),
    "what anyone may, machinery may too": (
        first(by=("anyone", "machinery")),
        "MINOR",
        "design_complete (analysis → design) by anyone → anyone or machinery",
    ),
    "a field may be there": (changed(STORY, fields=(FIELD,)), "MINOR", "field points added"),
    "a field must be there": (
        changed(STORY, fields=(replace(FIELD, required=True),)),
        "MAJOR",
        "field points added, and it must be there",
    ),
    "a field must be there now": (
        changed(LINKED, fields=(replace(FIELD, required=True),)),
        "MAJOR",
        "field points changed, and it must be there",
    ),
    "a field is told otherwise": (
        changed(LINKED, fields=(replace(FIELD, description="x"),)),
        "PATCH",
        "field points changed",
    ),
    "a field is gone": (changed(LINKED, fields=()), "MINOR", "field points removed"),
    "a link is gone": (changed(LINKED, links=()), "MAJOR", "link epic removed"),
    "a link is new": ((STORY, replace(STORY, links=(*STORY.links, LINK))), "MINOR", "link epic added"),
    "metadata are told no more": (changed(LINKED, required_metadata=()), "MAJOR", "required metadata points removed"),
    "a state ends": (changed(STORY, terminal=STORY.terminal | {"blocked"}), "MAJOR", "state blocked is now terminal"),
    "a state ends no more": (changed(STORY, terminal=frozenset()), "MAJOR", "state done is no longer terminal"),
    "it begins elsewhere": (changed(STORY, initial="design"), "MAJOR", "it begins in design, not in analysis"),
    "a deadline differs": (
        changed(TIMED, deadlines=MappingProxyType({"blocked": Deadline(61, "unblock")})),
        "MINOR",
        "deadline blocked: seconds 60, trigger unblock → seconds 61, trigger unblock",
    ),
    "a deadline is gone": ((TIMED, STORY), "MINOR", "deadline blocked removed"),
    "a follow-up": (first(then=(FollowUp("pull_request", "approve"),)), "MINOR", "follow-ups of design_complete"),
    "guards of two ways are swapped": (
        swapped("execution_failed"),
        "MINOR",
        'guards of execution_failed (running → retrying): ["retries_left"] → ["retries_used_up"]',
    ),
    "a source goes over to another rule": (
        regrouped("cancel", ("SUBMITTED",), ("PENDING", "RUNNING")),
        "MINOR",
        "follow-ups of cancel (PENDING → CANCELED)",
    ),
    "links in another order": (changed(TASK, links=TASK.links[::-1]), "PATCH", "the order of its links changed"),
    "another link is changed": (
        first(relink=Relink("sprint")),
        "MINOR",
        'the link that it changes of design_complete: none → {"role": "sprint", "data_key": null}',
    ),
    "only the order": (
        changed(STORY, transitions=STORY.transitions[::-1]),
        "PATCH",
        "the order of transitions changed",
    ),
    "the order of alternatives": (
        changed(
            replace(STORY, transitions=(*STORY.transitions, T("unblock", "blocked", "design"))),
            transitions=(*STORY.transitions[:-1], T("unblock", "blocked", "design"), STORY.transitions[-1]),
        ),
        "MINOR",
        "the order of transitions changed",
    ),
}


@pytest.mark.parametrize("case", CASES, ids=[name.replace(" ", "-") for name in CASES])
def test_each_change_is_named_with_the_part_it_asks_for(case: str) -> None:
    (old, new), part, says = CASES[case]
    difference = compare(recorded(old), recorded(new))
    assert difference.part == part
    assert [each.message for each in difference.changes if each.message.startswith(says)]


@pytest.mark.parametrize("case", CASES, ids=[name.replace(" ", "-") for name in CASES])
def test_whatever_changes_a_checksum_asks_for_another_number(case: str) -> None:
    (old, new), _, _ = CASES[case]
    assert checksum(old) != checksum(new)
    (says,) = complaints({(old.type, old.version): recorded(old)}, [new])
    wanted = compare(recorded(old), recorded(new)).wanted
    assert numbers(wanted) > numbers(old.version)
    assert f"make it {wanted} and keep {old.version}" in says


def test_the_gravest_change_decides_and_lesser_ones_are_named_too() -> None:
    new = replace(TIMED, initial="design", transitions=(*STORY.transitions, T("abandon", "blocked", "done")))
    difference = compare(recorded(STORY), recorded(new))
    assert difference.verdict == "MAJOR: it begins in design, not in analysis"
    assert {each.what for each in difference.changes} == {"initial", "transition", "deadline"}


@pytest.mark.parametrize(
    ("version", "part", "least"),
    [
        ("1.2.3", "MAJOR", "2.0.0"),
        ("1.2.3", "MINOR", "1.3.0"),
        ("1.2.3", "PATCH", "1.2.4"),
        ("0.2.0", "MAJOR", "0.3.0"),  # before 1.0.0 anything may change
        ("0.2.0", "MINOR", "0.3.0"),
    ],
)
def test_the_least_version_that_will_do(version: str, part: Any, least: str) -> None:
    assert raised(version, part) == least


@pytest.mark.parametrize("version", ["1.0", "1.0.x", "", "1.0.0.0", "1.-2.3", "1_0.0.0", " 1.0.0", "01.0.0"])
def test_a_version_that_is_none_is_refused(version: str) -> None:
    with pytest.raises(BadInput, match=r"not MAJOR\.MINOR\.PATCH"):
        numbers(version)


@pytest.mark.parametrize(
    ("version", "right"), [("1.0.0", False), ("1.0.1", False), ("1.1.0", True), ("1.10.0", True), ("2.0.0", True)]
)
def test_a_number_is_right_if_it_is_raised_far_enough(version: str, right: bool) -> None:
    new = replace(STORY, version=version, transitions=(*STORY.transitions, T("abandon", "blocked", "done")))
    difference = compare(recorded(STORY), recorded(new))
    assert (difference.right, difference.wanted) == (right, "1.1.0")


def test_an_exported_form_is_compared_as_far_as_it_goes() -> None:
    difference = compare(public(STORY), recorded(replace(LINKED, initial="design")))
    assert [each.what for each in difference.changes] == ["initial"]
    assert "rules" in difference.unseen
    assert compare(recorded(STORY), recorded(LINKED)).unseen == ()


# The lock ---------------------------------------------------------------------------------------------------------

LOCKED = {("story", "1.0.0"): recorded(STORY)}


def test_a_lock_is_read_as_it_was_written() -> None:
    forms = {(each.type, each.version): recorded(each) for each in catalogue()}
    text = written(forms)
    assert read(text, "a.lock") == forms
    assert written(read(text, "a.lock")) == text
    assert len(text.splitlines()) == len(forms)


def test_the_versions_of_a_type_are_in_their_order() -> None:
    many = {("story", version): recorded(replace(STORY, version=version)) for version in ("1.10.0", "1.9.0")}
    assert [key[1] for key in read(written(many), "a.lock")] == ["1.9.0", "1.10.0"]


@pytest.mark.parametrize("line", ["{", "[]", "{}", '{"type": "story", "version": "1.0.0", "checksum": "", "form": []}'])
def test_what_is_no_lock_is_refused_with_its_line(line: str) -> None:
    with pytest.raises(BadInput, match=r"a\.lock:2 is not a valid entry"):
        read(written(LOCKED) + line + "\n", "a.lock")


def test_a_lock_that_was_changed_is_refused() -> None:
    text = written(LOCKED).replace('"design"', '"Design"')
    with pytest.raises(BadInput, match=r"a\.lock:1: story 1\.0\.0 was changed in the lock"):
        read(text, "a.lock")


def test_a_changed_definition_without_a_version_is_told_which_to_take() -> None:
    new = replace(STORY, transitions=STORY.transitions[:-1])
    (says,) = complaints(LOCKED, [new])
    assert says.startswith(
        "story 1.0.0 was changed without a new version: make it 2.0.0 and keep 1.0.0 as it was. MAJOR:"
    )


def test_what_is_as_it_was_released_and_what_is_only_told_otherwise_are_no_complaint() -> None:
    assert complaints(LOCKED, [replace(STORY, summary="Other words.")]) == []


def test_a_new_version_has_to_be_locked_under_the_right_number() -> None:
    new = replace(STORY, version="1.0.1", transitions=(*STORY.transitions, T("abandon", "blocked", "done")))
    not_locked, wrong = complaints(LOCKED, [STORY, new])
    assert not_locked == "story 1.0.1 is not locked yet: interlock definitions lock"
    assert wrong.startswith("story 1.0.1 must be 1.1.0: it differs from 1.0.0 by MINOR: transition abandon")
    assert list(misnumbered(LOCKED, replace(new, version="1.1.0"))) == []
    assert complaints(LOCKED | {("story", "1.0.1"): recorded(new)}, [STORY, new]) == []  # released is released


def test_a_version_that_is_gone_is_missed() -> None:
    assert complaints(LOCKED, []) == ["story 1.0.0 is locked, but no longer in the code"]
