"""What is published and recorded of a definition: complete, stable, and equal exactly when behaviour is."""

import json
import subprocess
import sys
from dataclasses import replace
from types import MappingProxyType

import pytest

from interlock.workflows.backoff import Growth
from interlock.workflows.catalogue import catalogue
from interlock.workflows.definition import ApprovalPoint, Deadline, Definition, Effect, Guard, T
from interlock.workflows.versioning.diff import compare
from interlock.workflows.versioning.export import canonical_checksum, checksum, mermaid, public, recorded

STORY, APPROVAL = catalogue().get("story"), catalogue().get("approval")
RECORDED = {  # as released: an installation that has recorded these refuses to start with others
    "story": "a507f2e23fd4de9c",
    "sprint": "606876408942573c",
    "pr_review": "6a5f8c4b65e6b496",
    "approval": "7cfce03a6490aa56",
}
PASSES = Guard("passes", lambda case: True, "it must pass")
every = pytest.mark.parametrize("definition", list(catalogue()), ids=lambda each: each.type)


def last_move(**changed: object) -> Definition:
    *before, last = STORY.transitions
    return replace(STORY, transitions=(*before, replace(last, **changed)))


CHANGES: dict[str, tuple[Definition, str]] = {
    "a state added": (
        replace(STORY, states=(*STORY.states, "archived"), terminal=STORY.terminal | {"archived"}),
        "MAJOR: state archived added",
    ),
    "a transition removed": (
        replace(STORY, transitions=STORY.transitions[:-1]),
        "MAJOR: transition unblock (blocked → implementation) removed",
    ),
    "a transition redirected": (
        last_move(dest="analysis"),
        "MAJOR: transition unblock (blocked → implementation) removed",
    ),
    "a transition added": (
        replace(STORY, transitions=(*STORY.transitions, T("abandon", "blocked", "done"))),
        "MINOR: transition abandon (blocked → done) added",
    ),
    "a guard added": (last_move(when=(PASSES,)), 'MINOR: guards of unblock: none → ["passes"]'),
    "a right taken away": (
        last_move(by=("machinery", "operator")),
        "MAJOR: unblock (blocked → implementation) by anyone → machinery or operator",
    ),
    "an effect added": (last_move(effects=(Effect("notice"),)), "MINOR: effects of unblock"),
    "an approval added": (last_move(approval=ApprovalPoint()), "MINOR: approval of unblock"),
    "a severity changed": (last_move(severity="error"), "MINOR: severity of unblock"),
    "a deadline added": (
        replace(STORY, deadlines=MappingProxyType({"blocked": Deadline(60, "unblock")})),
        "MINOR: deadline blocked added",
    ),
    "metadata required": (replace(STORY, required_metadata=("points",)), "MINOR: required metadata points added"),
    "an exception declared": (last_move(exceptional=True), "MINOR: exception of unblock"),
}


@every
def test_the_published_form_has_one_entry_for_each_source(definition: Definition) -> None:
    form = public(definition)
    assert set(form) == {"type", "version", "initial", "states", "transitions"}
    assert {state for state, about in form["states"].items() if about["terminal"]} == definition.terminal
    assert [(each["trigger"], each["source"], each["dest"]) for each in form["transitions"]] == [
        (move.trigger, source, move.dest) for move in definition.transitions for source in move.sources
    ]


@every
def test_the_recorded_form_survives_json_with_its_checksum(definition: Definition) -> None:
    returned = json.loads(json.dumps(recorded(definition), sort_keys=True))
    assert canonical_checksum(returned) == checksum(definition)


def test_a_checksum_is_the_same_in_every_process() -> None:
    program = (
        "from interlock.workflows.catalogue import catalogue;"
        "from interlock.workflows.versioning.export import checksum;"
        "print(*(checksum(each) for each in catalogue()))"
    )
    for seed in ("0", "1"):
        printed = subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        )
        assert printed.stdout.split() == [checksum(each) for each in catalogue()]


def test_prose_is_not_behaviour() -> None:
    assert checksum(replace(STORY, summary="Other words.")) == checksum(STORY)
    assert compare(recorded(STORY), recorded(STORY)).verdict == "PATCH: words only"


@pytest.mark.parametrize("change", CHANGES, ids=[name.replace(" ", "-") for name in CHANGES])
def test_every_change_of_behaviour_changes_the_checksum_and_asks_for_its_part_of_the_version(change: str) -> None:
    changed, says = CHANGES[change]
    assert checksum(changed) != checksum(STORY)
    assert compare(recorded(STORY), recorded(changed)).verdict.startswith(says)


def test_what_an_earlier_release_recorded_still_has_its_checksum() -> None:
    assert {type_: checksum(catalogue().get(type_, "1.0.0"))[:16] for type_ in RECORDED} == RECORDED


def test_every_way_a_deadline_can_differ_is_recorded() -> None:
    plain = Deadline(60, "unblock")
    ways = (
        plain,
        replace(plain, seconds=61),
        replace(plain, context_key="patience"),
        replace(plain, growth=Growth("retry_count", 600)),
        replace(plain, growth=Growth("retry_count", 601)),
        replace(plain, growth=Growth("other_count", 600)),
        replace(plain, growth=Growth("retry_count", 600, factor=3)),
    )
    assert len({checksum(replace(STORY, deadlines=MappingProxyType({"blocked": way}))) for way in ways}) == len(ways)


@every
def test_the_diagram_shows_every_move_and_every_end(definition: Definition) -> None:
    drawn = mermaid(definition)
    assert drawn.startswith(f"stateDiagram-v2\n    [*] --> {definition.initial}")
    for move in definition.transitions:
        if move.relink:
            (note,) = [line for line in drawn.splitlines() if f": {move.trigger}" in line]
            assert set(move.sources) <= set(note.partition(" stays in ")[2].split(", "))
            continue
        for source in move.sources:
            assert f"    {source} --> {move.dest}: {move.trigger}" in drawn
    assert drawn.count("--> [*]") == len(definition.terminal)


@every
def test_the_diagram_of_an_instance_lights_its_state_and_is_otherwise_the_same(definition: Definition) -> None:
    plain = mermaid(definition)
    lit = mermaid(definition, definition.initial)
    assert lit.startswith(plain)
    assert f"    class {definition.initial} current" in lit.removeprefix(plain).splitlines()


def test_the_diagram_marks_approvals_guards_and_deadlines() -> None:
    assert "approved --> merged: merge ‖ approval" in mermaid(catalogue().get("pr_review"))
    assert "review --> testing: approve ? pull_request_merged" in mermaid(STORY)
    assert "note right of pending: expire after 72 h" in mermaid(APPROVAL)
    assert "note right of running: timeout_exceeded after 30 min" in mermaid(catalogue().get("task"))
    assert "note right of retrying: retry_delay_elapsed after 2 s, growing" in mermaid(catalogue().get("task"))
