"""A deadline has the seconds of the instance it is armed for: its own where it says so, longer with each retry."""

from dataclasses import replace
from math import isclose
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.workflows.backoff import Growth, grown
from interlock.workflows.catalogue import catalogue
from interlock.workflows.decide import decide
from interlock.workflows.definition import Deadline
from interlock.workflows.outcomes import Applied
from tests.unit.cases import favourable

TASK, BREAKER = catalogue().get("task"), catalogue().get("circuit_breaker")


def armed(type_: str, state: str, trigger: str, **facts: Any) -> Deadline:
    """The deadline that a move arms."""
    definition = catalogue().get(type_)
    outcome = decide(definition, favourable(definition, state, trigger, **facts))
    assert isinstance(outcome, Applied)
    assert outcome.deadline is not None
    return outcome.deadline


def test_a_running_task_times_out_after_its_own_seconds_or_half_an_hour() -> None:
    for context, seconds in (({}, 1800), ({"timeout_sec": 5}, 5), ({"timeout_sec": None}, 1800)):
        deadline = armed("task", "queued", "worker_started", context=context)
        assert (deadline.trigger, deadline.seconds) == ("timeout_exceeded", seconds)


@pytest.mark.parametrize("trigger", ["execution_failed", "timeout_exceeded"])
def test_each_retry_of_a_task_waits_twice_as_long_counted_before_the_move(trigger: str) -> None:
    waits = [
        armed("task", "running", trigger, row={"retry_count": count, "max_retries": 99}).seconds
        for count in (0, 1, 2, 20)
    ]
    assert waits == [2, 4, 8, 600]


def test_a_task_may_say_how_its_retries_wait() -> None:
    context = {"backoff": {"base": 0.5, "factor": 3, "cap": 4}}
    waits = [armed("task", "running", "execution_failed", context=context, row={"retry_count": n}) for n in (0, 1, 2)]
    assert [each.seconds for each in waits] == [0.5, 1.5, 4]
    assert {each.trigger for each in waits} == {"retry_delay_elapsed"}


def test_an_open_breaker_is_tried_again_after_its_cooldown() -> None:
    for context, seconds in (({}, 60), ({"cooldown_seconds": 7}, 7)):
        deadline = armed("circuit_breaker", "CLOSED", "failure_threshold_exceeded", context=context)
        assert (deadline.trigger, deadline.seconds) == ("cooldown_expires", seconds)
        assert armed("circuit_breaker", "HALF_OPEN", "failure", context=context) == deadline


def test_a_state_without_a_deadline_arms_none() -> None:
    outcome = decide(TASK, favourable(TASK, "pending", "scheduler_assigned"))
    assert isinstance(outcome, Applied)
    assert outcome.deadline is None


def test_a_move_into_a_deadline_that_grows_looks_up_the_row_it_counts_by() -> None:
    unguarded = replace(
        BREAKER,
        deadlines=MappingProxyType({"OPEN": Deadline(60, "cooldown_expires", growth=Growth("opened", 600))}),
    )
    needing = {trigger for trigger, needs in unguarded.needs.items() if "row" in needs}
    assert needing == {"failure_threshold_exceeded", "failure"}


def test_a_deadline_that_is_the_same_for_all_is_one_object() -> None:
    plain = Deadline(60, "expire")
    assert plain.resolved({"anything": 1}, {"retry_count": 3}) is plain


@given(count=st.integers(0, 10_000), factor=st.floats(1, 10), base=st.floats(0, 1e6), cap=st.floats(0, 1e6))
def test_growing_never_passes_its_cap_nor_goes_back(count: int, factor: float, base: float, cap: float) -> None:
    waits = [grown(each, base_seconds=base, cap_seconds=cap, factor=factor) for each in (count + 1, count + 2)]
    assert 0 <= waits[0] <= waits[1] <= cap
    said = Growth("n", cap_seconds=cap, factor=factor).seconds(base, {}, {"n": count})
    assert isclose(said, waits[0])
