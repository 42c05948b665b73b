"""What stands in the way of a migration, what its clock says, and what cannot be one: each by itself."""

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from interlock.workflows.backoff import Growth
from interlock.workflows.definition import ApprovalPoint, Deadline, Definition
from interlock.workflows.versioning.export import recorded
from interlock.workflows.versioning.migration import Open, Subject, clock, destination, misfit, obstacles
from tests.parcels import PARCEL_1_0, PARCEL_1_1, PARCEL_2_0, PARCEL_3_0

OLD = recorded(PARCEL_1_0)
HERE = Subject("packed", 0, {})
FORMS = {each.version: recorded(each) for each in (PARCEL_1_0, PARCEL_1_1, PARCEL_2_0)}


def request(trigger: str = "send", status: str = "pending", **said: Any) -> Open:
    return Open("R", trigger, status, **({"origin": "agent"} | said))


def found(subject: Subject, new: Definition = PARCEL_1_1, **renamed: str) -> list[str]:
    return obstacles(OLD, new, subject, renamed)


def asking(quorum: int) -> Definition:
    stop = next(move for move in PARCEL_1_1.transitions if move.trigger == "stop")
    return replace(
        PARCEL_1_1,
        transitions=tuple(
            replace(stop, approval=ApprovalPoint(quorum)) if move is stop else move for move in PARCEL_1_1.transitions
        ),
    )


@pytest.mark.parametrize(
    ("subject", "new", "renamed", "says"),
    [
        (HERE, PARCEL_1_1, {}, None),
        (replace(HERE, state="sent"), PARCEL_2_0, {}, "give --map sent=STATE"),
        (replace(HERE, state="delivered"), PARCEL_1_1, {}, "what has ended does not change"),
        (
            replace(HERE, state="sent", context={"address": "x"}),
            PARCEL_2_0,
            {"sent": "limbo"},
            "no state 'limbo' either",
        ),
        (
            replace(HERE, state="sent", context={"address": "x"}),
            PARCEL_2_0,
            {"sent": "lost"},
            "fire a trigger that leads",
        ),
        (HERE, PARCEL_2_0, {}, "its context: address must be an address"),
        (replace(HERE, reports=["weighed"]), replace(PARCEL_2_0, fields=()), {}, "will report 'weighed'"),
        (replace(HERE, reports=["weighed"]), PARCEL_1_1, {}, None),
        (replace(HERE, row_readable=False), PARCEL_3_0, {}, "guards of again read a typed row"),
        (replace(HERE, row_readable=False), PARCEL_1_1, {}, None),
        (replace(HERE, requests=[request()]), PARCEL_1_1, {}, None),
        (replace(HERE, requests=[request("weighed")]), replace(PARCEL_2_0, fields=()), {}, "has no such trigger"),
        (replace(HERE, requests=[request(bound_version=0)]), PARCEL_1_1, {}, "bound to the instance's version 0"),
        (replace(HERE, version=1, requests=[request(bound_version=0)]), PARCEL_1_1, {}, None),
        (replace(HERE, requests=[request("send", "waiting", bound_version=0)]), PARCEL_1_1, {}, None),
        (replace(HERE, requests=[request("gone", origin="timer", bound_version=0)]), PARCEL_1_1, {}, None),
        (replace(HERE, state="sent", requests=[request("stop", "waiting", held=True)]), asking(1), {}, None),
        (replace(HERE, state="sent", requests=[request("stop", "waiting", held=True)]), asking(2), {}, "terms differ"),
    ],
)
def test_each_obstacle_is_named_and_nothing_else_is_one(
    subject: Subject, new: Definition, renamed: dict[str, str], says: str | None
) -> None:
    assert [says in each for each in found(subject, new, **renamed)] == ([True] if says else [])  # type: ignore[operator]


def test_all_that_stands_in_the_way_is_named_at_once() -> None:
    much = replace(HERE, requests=[request("weighed")], reports=["weighed"])
    assert len(found(much, PARCEL_2_0)) == 3


def test_a_state_that_the_new_version_has_is_never_renamed() -> None:
    assert destination(PARCEL_1_1, "sent", {"sent": "packed"}) == "sent"


def timed(state: str, deadline: Deadline) -> Definition:
    return replace(PARCEL_1_1, deadlines=MappingProxyType({state: deadline}))


def test_a_deadline_counts_from_when_the_state_was_entered_and_never_below_nothing() -> None:
    for age, left in ((0.0, 60.0), (45.0, 15.0), (90.0, 0.0)):
        runs_out = clock(OLD, timed("packed", Deadline(60, "send")), HERE, {}, age)
        assert runs_out is not None
        assert (runs_out.deadline.seconds, runs_out.kept) == (left, False)
    assert clock(OLD, PARCEL_1_1, HERE, {}, 0.0) is None


def test_a_state_under_another_name_is_entered_by_the_migration() -> None:
    runs_out = clock(OLD, PARCEL_2_0, replace(HERE, state="sent"), {"sent": "under_way"}, 1000.0)
    assert runs_out is not None
    assert (runs_out.deadline.seconds, runs_out.kept) == (60.0, False)


def test_the_same_deadline_keeps_its_instant() -> None:
    runs_out = clock(OLD, PARCEL_1_1, replace(HERE, state="sent"), {}, 10.0)
    assert runs_out is not None
    assert (runs_out.deadline.seconds, runs_out.kept) == (3590.0, True)


def test_a_growing_deadline_is_what_it_was_when_the_state_was_entered() -> None:
    growing = timed("packed", Deadline(10, "send", growth=Growth("retry_count", 600)))
    runs_out = clock(OLD, growing, replace(HERE, row={"retry_count": 3}), {}, 0.0)  # counted by entering: 2 before it
    assert runs_out is not None
    assert runs_out.deadline.seconds == 40.0


RIGHT = {"under": "1.0.0", "to": "1.1.0", "source": "sent", "dest": "sent", "metadata": {"from_version": "1.0.0"}}


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({}, None),
        ({"to": "2.0.0", "dest": "under_way"}, None),
        ({"to": "9.0.0"}, "version 9.0.0 is not recorded"),
        ({"under": "9.0.0"}, "version 9.0.0 is not recorded"),
        ({"metadata": {}}, "it says it came from version None"),
        ({"metadata": {"from_version": "2.0.0"}}, "it says it came from version 2.0.0, but was under 1.0.0"),
        ({"to": "1.0.0"}, "but was under 1.0.0"),
        ({"source": "limbo"}, "nothing leaves 'limbo'"),
        ({"source": "delivered", "dest": "delivered"}, "nothing leaves 'delivered'"),
        ({"dest": "limbo"}, "nothing enters 'limbo'"),
        ({"to": "2.0.0", "dest": "lost"}, "nothing enters 'lost'"),
        ({"dest": "packed"}, "1.1.0 has 'sent' too"),
    ],
)
def test_what_cannot_be_a_migration_is_told_apart(changed: dict[str, Any], says: str | None) -> None:
    told = misfit(FORMS, **(RIGHT | changed))  # type: ignore[arg-type]
    assert (told is None) if says is None else (told is not None and says in told)
