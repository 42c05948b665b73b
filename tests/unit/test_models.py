"""Typed contexts and data: what does not fit its model is refused with the field, and guards get the model."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, RootModel, create_model

from interlock.workflows import typed
from interlock.workflows.catalogue import Catalogue
from interlock.workflows.decide import decide
from interlock.workflows.definition import Deadline, Effect, FollowUp, Guard, Link, Relink, T
from interlock.workflows.errors import InvalidDefinition, WrongData
from interlock.workflows.guard_context import Case, Linked, Override
from interlock.workflows.missing import missing
from interlock.workflows.outcomes import Applied, Rejected
from interlock.workflows.versioning.diff import compare
from interlock.workflows.versioning.export import checksum, recorded
from interlock.workflows.versioning.migration import Open, Subject, obstacles
from interlock.workflows.versioning.validate import check
from tests.typed_machines import SHIPMENT, Heavier, Longer, Shipment, Start, changed

CONTEXT = {"image": "web:7"}
# What is wrong -> (an object, what is said of it).
WRONG_CONTEXTS: dict[str, tuple[dict[str, Any], str]] = {
    "missing": ({}, "image is missing"),
    "misspelt": (CONTEXT | {"replcas": 3}, "replcas is no field (did you mean replicas?)"),
    "unknown": (CONTEXT | {"x y\u202e": 3}, r"'x y\u202e' is no field"),
    "text for a number": (CONTEXT | {"replicas": "3"}, "replicas: Input should be a valid integer"),
    "true for a number": (CONTEXT | {"replicas": True}, "replicas: Input should be a valid integer"),
    "too large": (CONTEXT | {"replicas": 10}, "replicas: Input should be less than or equal to 9"),
    "too long": ({"image": "w:" + "x" * 99}, "image: String should have at most 40 characters"),
    "null": ({"image": None}, "image: Input should be a valid string"),
    "its own rule": ({"image": "web"}, "image: an image needs a tag, such as web:7"),
    "deep": (CONTEXT | {"registry": {"host": "h", "mirrors": ["a", 1]}}, "registry.mirrors[1]: Input should be a val"),
    "misspelt below": (CONTEXT | {"registry": {"host": "h", "hots": 1}}, "registry.hots is no field"),
    "a validator that fails": ({"image": "keyerror:1"}, "Shipment cannot read it: KeyError: 'keyerror:1'"),
}


@pytest.mark.parametrize("wrong", WRONG_CONTEXTS)
def test_what_does_not_fit_is_refused_with_the_field(wrong: str) -> None:
    """TYPED-1, TYPED-3."""
    context, says = WRONG_CONTEXTS[wrong]
    (said,) = SHIPMENT.wrong_fields(context)
    assert said.startswith(says)
    outcome = decide(SHIPMENT, Case("planned", 0, context, "drop", "ann"))
    assert isinstance(outcome, Rejected)
    assert outcome.reason["code"] == "wrong_data"
    assert outcome.reason["wrong"] == [f"context: {said}"]
    assert outcome.reason["legal"] == ["start", "drop"]


def test_wrong_data_is_refused_with_the_field_before_guards_see_it() -> None:
    """TYPED-2, TYPED-4."""
    with pytest.raises(WrongData, match=r"^data of 'start': ticket is missing; tickt is no field \(did you mean tick"):
        SHIPMENT.require_data("start", {"tickt": 1})
    SHIPMENT.require_data("drop", {"anything": 1})
    outcome = decide(SHIPMENT, Case("planned", 0, CONTEXT, "start", "ann", {"ticket": "1"}))
    assert isinstance(outcome, Rejected)
    assert outcome.reason["message"] == "data of 'start': ticket: Input should be a valid integer"


def test_guards_get_the_models_with_default_values() -> None:
    """TYPED-5."""
    assert isinstance(decide(SHIPMENT, Case("planned", 0, CONTEXT, "start", "ann", {"ticket": 97})), Applied)
    refused = decide(SHIPMENT, Case("planned", 0, CONTEXT, "start", "ann", {"ticket": 98}))
    assert isinstance(refused, Rejected)
    assert refused.reason["missing"] == ["light"]


def test_what_interlock_adds_to_data_is_no_misspelt_field() -> None:
    added = {key: "x" for key in typed.BESIDE}
    assert typed.read_data(Start, {"ticket": 1} | added) == Start(ticket=1)
    with pytest.raises(WrongData, match="effect is no field"):
        SHIPMENT.require_data("start", {"ticket": 1, "effect": "x"})


def test_an_instance_is_not_moved_by_a_trigger_that_is_illegal_whatever_its_data() -> None:
    outcome = decide(SHIPMENT, Case("shipped", 2, {}, "start", "ann", {}))
    assert isinstance(outcome, Rejected)
    assert outcome.reason["code"] == "no_such_transition"


def test_an_override_passes_over_models_as_it_does_over_guards() -> None:
    """TYPED-7."""
    override = Override("shipping", allowed=True)
    outcome = decide(SHIPMENT, Case("planned", 0, {}, "start", "ann", {"override": {}}, override=override))
    assert isinstance(outcome, Applied)
    sealed = T("mend", "lost", "planned", exceptional=True, when=(Guard("one", lambda case: True, ""),), back="rework")
    definition = replace(SHIPMENT, transitions=(*SHIPMENT.transitions, sealed))
    bound = decide(definition, Case("lost", 2, {}, "mend", "ann", {}, override=Override("planned", allowed=True)))
    assert isinstance(bound, Rejected)
    assert bound.reason["code"] == "wrong_data"


def test_what_is_missing_is_said_for_a_typed_instance_too() -> None:
    far = Guard("near", lambda case: case.context.replicas > 5, "it must be near", needs=frozenset({"linked"}))
    definition = replace(SHIPMENT, transitions=(T("start", "planned", "lost", when=(far,)),))
    row = {"current_state": "planned", "version": 0, "context": CONTEXT}
    assert missing(definition, row, {"any": (Linked("a", "b", "c"),)}) == {"start": "it must be near"}
    assert missing(definition, row | {"context": {}}, {}) == {}


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20)
anything = st.recursive(
    scalars, lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=9), each, max_size=3)
)
KEYS = st.sampled_from(["image", "replicas", "registry", "patience_seconds", "ticket", "labels", "effect", "imag"])


@given(st.dictionaries(KEYS | st.text(max_size=9), anything, max_size=5), st.sampled_from(["context", "data"]))
def test_whatever_object_comes_is_read_or_refused_in_words(value: dict[str, Any], what: str) -> None:
    """TYPED-3: wrong types, missing and extra keys, of any depth, are a rejection and never an exception."""
    context, data = (value, {"ticket": 1}) if what == "context" else (CONTEXT, value)
    outcome = decide(SHIPMENT, Case("planned", 0, context, "start", "ann", data))
    fits = _fits(Shipment, value) if what == "context" else _fits(Start, typed_keys(value))
    if isinstance(outcome, Applied) or outcome.reason["code"] == "guard":  # type: ignore[union-attr]
        assert fits
    else:
        assert not fits
        assert isinstance(outcome, Rejected)
        assert outcome.reason["code"] == "wrong_data"
        assert 1 <= len(outcome.reason["wrong"]) <= typed.MOST_NAMED + 1
        assert all(each.isprintable() and len(each) < 1_500 for each in outcome.reason["wrong"])


def typed_keys(value: Mapping[str, Any]) -> dict[str, Any]:
    return {key: each for key, each in value.items() if key not in typed.BESIDE}


def _fits(model: type[BaseModel], value: Mapping[str, Any]) -> bool:
    """A second opinion, from the exported JSON Schema's words: which keys, which types."""
    known = typed.schema(model)["properties"]
    if set(value) - set(known) or set(typed.schema(model).get("required", ())) - set(value):
        return False
    return all(_has_type(key, each) for key, each in value.items())


def _has_type(key: str, value: Any) -> bool:
    number = type(value) in (int, float)
    match key:
        case "image":
            return isinstance(value, str) and ":" in value and len(value) <= 40
        case "replicas":
            return type(value) is int and 1 <= value <= 9
        case "patience_seconds":
            return value is None or (number and value > 0)
        case "ticket":
            return type(value) is int
        case "labels":
            return isinstance(value, dict) and all(isinstance(each, str) for each in value.values())
        case _:
            return value is None  # a registry: the keys that are drawn are not its own


Unforbidding = create_model("Unforbidding", image=(str, ...))
Nesting = create_model("Nesting", __config__={"extra": "forbid"}, inner=(Unforbidding, ...))


class Calling(BaseModel, extra="forbid"):
    """Has something that JSON has not."""

    call: type


class Voting(BaseModel, extra="forbid"):
    """Has what Interlock writes."""

    votes: int = 0


class Patient(BaseModel, extra="forbid"):
    """Has seconds of all kinds."""

    text: str = "5"
    free: float | None = None
    preset: float = Field(60, gt=0)
    good: int | None = Field(None, ge=1)
    room: str = "R-1"


def patient(key: str) -> dict[str, Any]:
    return {"context": Patient, "deadlines": {"shipping": Deadline(900, "late", context_key=key)}}


def moved(*moves: Any) -> dict[str, Any]:
    return {"transitions": (*SHIPMENT.transitions, *moves)}


LINK = Link("room", "room", "room", "shipment")
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no model": ({"context": dict}, "context must be a class derived from pydantic.BaseModel, not <class 'dict'>"),
    "no class": ({"data": {"start": Start(ticket=1)}}, "data of 'start' must be a class derived from"),
    "no object": ({"context": RootModel[int]}, "context must be a class derived from"),
    "misspelling": ({"context": Unforbidding}, "Unforbidding would ignore misspelt keys: declare it `class Unforbidd"),
    "misspelling below": ({"context": Nesting}, "context: Unforbidding would ignore misspelt keys"),
    "not JSON": ({"context": Calling}, "context: Calling has no JSON Schema, use types that JSON has"),
    "large": (
        {
            "context": create_model(
                "Large", __config__={"extra": "forbid"}, **dict.fromkeys(map("f{}".format, range(3000)), (int, ...))
            )
        },
        "context: Large is too large or too deep: its JSON Schema is larger than 65,536 bytes",
    ),
    "no trigger": ({"data": {"begin": Start}}, "data names a model for 'begin', which is none of its triggers"),
    "what Interlock writes": ({"data": {"start": Voting}}, "data of 'start': no caller can give 'votes'"),
    "a failure": ({"data": {"failed": Start}}, "data of 'failed': an effect fires it, with data of Interlock's own"),
    "a deadline": (
        {"data": {"late": Start}},
        "the deadline of 'shipping' fires it without data, but ticket is missing",
    ),
    "a deadline of text": (patient("text"), "the deadline of 'shipping' comes from 'text': let it be a number"),
    "a deadline below 0": (patient("free"), "the deadline of 'shipping' comes from 'free': let it be a number"),
    "a deadline's default": (patient("preset"), "would not use the default value of 'preset': let it be None"),
    "a deadline of none": (patient("lost"), "comes from 'lost', which is not a field of this type"),
    "a link of none": (
        {"links": (replace(LINK, context_key="lost"),)},
        "the link 'room' is named by 'lost', which is no field of Shipment",
    ),
    "a link's default": (
        {"context": Patient, "deadlines": {}, "links": (LINK,)},
        "the link 'room': a default value of 'room' would not be followed",
    ),
    "exclusive": (
        moved(T("go", "planned", "lost", effects=(Effect("notice", exclusive="replicas"),))),
        "effect 'notice' is exclusive by 'replicas': make that field a required one",
    ),
    "a relink": (
        {"links": (replace(LINK, context_key="image"),), "data": {"go": Start}}
        | moved(T("go", "planned", "planned", relink=Relink("room", "room_id"))),
        "data of 'go': 'room_id', which names what it links, is no field of it",
    ),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_model_that_cannot_be_kept_to_is_refused_with_the_cure(bad: str) -> None:
    """TYPED-8."""
    changes, says = BAD[bad]
    with pytest.raises(InvalidDefinition) as refusal:
        check(replace(SHIPMENT, **changes))
    assert says in str(refusal.value)


def test_fields_and_a_model_are_two_ways_to_say_one_thing() -> None:
    from interlock.workflows.fields import AUTHOR

    with pytest.raises(InvalidDefinition, match="it has both context and fields: put the fields into the model"):
        check(replace(SHIPMENT, fields=(AUTHOR,)))
    assert check(replace(SHIPMENT, **patient("good"))) == []


def test_a_follow_up_fires_without_data_so_what_it_fires_must_take_none() -> None:
    room = replace(
        SHIPMENT,
        type="room",
        context=None,
        data={},
        deadlines={},
        links=(Link("cargo", "shipment", "cargo", "rooms"),),
        transitions=tuple(replace(move, then=(FollowUp("cargo", "start"),)) for move in SHIPMENT.transitions),
    )
    with pytest.raises(
        InvalidDefinition, match=r"room 1.0.0 follows up with 'start' of shipment 1.0.0, without data, b"
    ):
        Catalogue([SHIPMENT, room])
    assert len([*Catalogue([changed("1.0.0", data={}), room])]) == 2


def test_a_changed_model_is_a_changed_definition_and_changed_words_are_not() -> None:
    """TYPED-6."""
    reworded = create_model(
        "Shipment", __base__=Shipment, image=(str, Field(description="Other words.", max_length=40))
    )
    assert checksum(changed("1.0.0")) == checksum(SHIPMENT)
    assert checksum(changed("1.0.0", context=Heavier)) != checksum(SHIPMENT)
    assert recorded(changed("1.0.0", context=reworded))["context"] == recorded(SHIPMENT)["context"]
    assert "context" not in recorded(changed("1.0.0", context=None, data={})), "others keep their checksum"


def test_the_order_of_a_set_of_default_values_is_no_change() -> None:
    """TYPED-6: it differs from process to process."""
    seen = set()
    for seed in ("1", "2", "3", "4"):
        program = (
            "from pydantic import BaseModel\n"
            "class M(BaseModel, extra='forbid'):\n"
            "    tags: set[str] | None = {'b', 'a', 'd', 'c'}\n"
            "from interlock.workflows.typed import recorded_schema\n"
            "print(recorded_schema(M)['properties']['tags']['default'])"
        )
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        seen.add(done.stdout)
    assert seen == {"['a', 'b', 'c', 'd']\n"}


class Wider(Shipment, extra="forbid"):
    """More is optional, and the default is another."""

    replicas: int = Field(3, ge=1, le=9)
    note: str = ""


class Narrower(Shipment, extra="forbid"):
    """Fewer replicas, and they must be given."""

    replicas: int = Field(ge=1, le=8)


@pytest.mark.parametrize(
    ("old", "new", "part", "says"),
    [
        ({"context": None}, {}, "MAJOR", "context has a model now"),
        ({}, {"context": None}, "MINOR", "context has no model any more"),
        ({}, {"context": Wider}, "MINOR", "field note of the context added"),
        ({}, {"context": Narrower}, "MAJOR", "field replicas of the context is now required"),
        ({}, {"context": Heavier}, "MAJOR", "field weight of the context added, and required"),
        ({"context": Heavier}, {}, "MAJOR", "field weight of the context removed"),
        ({"context": Narrower}, {}, "MAJOR", "maximum 8"),
        ({}, {"data": {"start": Longer}}, "MAJOR", "field reason of the data of start added, and required"),
        ({"data": {"start": Start}}, {"data": {}}, "MINOR", "data of start has no model any more"),
    ],
)
def test_a_change_of_a_model_raises_the_version_by_what_it_breaks(
    old: dict[str, Any], new: dict[str, Any], part: str, says: str
) -> None:
    """TYPED-6, VERSION-4."""
    found = compare(recorded(changed("1.0.0", **old)), recorded(changed("1.0.1", **new)))
    assert found.part == part
    assert any(says in each.message for each in found.changes)


def test_a_change_of_a_model_inside_the_model_is_seen() -> None:
    registry = create_model("Registry", __config__={"extra": "forbid"}, host=(str, ...), port=(int, ...))
    other = create_model("Shipment", __base__=Shipment, registry=(registry | None, None))
    (change,) = compare(recorded(SHIPMENT), recorded(changed("1.0.1", context=other))).changes[:1]
    assert (change.part, change.message) == ("MAJOR", "field mirrors of the context's Registry removed")


def test_an_instance_migrates_only_if_its_context_and_what_waits_fit_the_new_models() -> None:
    """TYPED-6, VERSION-8."""
    new = changed("2.0.0", context=Heavier, data={"start": Longer})
    waiting = Open("r-1", "start", "scheduled", "agent", data={"ticket": 1})
    subject = Subject("planned", 0, CONTEXT, [waiting])
    assert obstacles(recorded(SHIPMENT), new, subject, {}) == [
        "its context: weight is missing",
        "request r-1 (start, scheduled): its data does not fit 2.0.0: reason is missing; let it be applied first, or "
        "refused",
    ]
    fitting = Subject("planned", 0, CONTEXT | {"weight": 1}, [replace(waiting, data={"ticket": 1, "reason": "x"})])
    assert obstacles(recorded(SHIPMENT), new, fitting, {}) == []
