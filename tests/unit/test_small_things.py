"""Backoff, public ids, names of wakeups, the rows of a firing: small functions with one promise each."""

import json
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from uuid_utils.compat import uuid7

from interlock.db.core.requests import PARTITIONS, partition_of
from interlock.workers.broker.wakeups import task_id
from interlock.workers.engine.applier import RetryPolicy
from interlock.workers.engine.trigger_request import Firing, checked, row
from interlock.workflows.audit.ids import CROCKFORD, event_name
from interlock.workflows.backoff import full_jitter
from interlock.workflows.errors import BadInput

INSTANCE = UUID("01976b2e-0000-7000-8000-00000000002a")
LIMIT = 1_000


@given(
    attempt=st.integers(1, 10_000),
    base=st.floats(0.001, 1e3),
    cap=st.floats(0.001, 1e6),
    chance=st.floats(0, 1, exclude_max=True),
)
def test_a_wait_is_never_negative_never_past_its_cap_nor_past_its_doubling(
    attempt: int, base: float, cap: float, chance: float
) -> None:
    wait = full_jitter(attempt, base_seconds=base, cap_seconds=cap, chance=chance)
    assert 0 <= wait <= cap
    assert wait <= base * 2.0 ** min(attempt - 1, 62)


def test_the_whole_range_of_a_wait_is_used() -> None:
    assert [full_jitter(3, base_seconds=2, cap_seconds=60, chance=chance) for chance in (0, 0.5)] == [0, 4]


def test_attempts_are_used_up_exactly_at_their_maximum() -> None:
    policy = RetryPolicy(max_attempts=3)
    assert [policy.delay_seconds(attempts) is None for attempts in (1, 2, 3, 4)] == [False, False, True, True]


def test_an_events_name_holds_all_bits_of_its_id() -> None:
    event_id = uuid7()
    bits = 0
    for letter in event_name(event_id).removeprefix("evt_"):
        bits = bits * 32 + CROCKFORD.index(letter)
    assert UUID(int=bits) == event_id


@given(first=st.uuids(), second=st.uuids())
def test_events_names_sort_as_their_ids(first: UUID, second: UUID) -> None:
    assert (event_name(first) < event_name(second)) == (first < second)


def test_instances_spread_over_every_partition() -> None:
    assert {partition_of(uuid7()) for _ in range(1_000)} == set(range(PARTITIONS))


def test_a_wakeup_is_named_after_its_request() -> None:
    assert task_id(str(INSTANCE)) == INSTANCE
    assert task_id("deploy-7") == task_id("deploy-7") != task_id("deploy-8")


def test_the_same_body_has_the_same_fingerprint_in_whatever_order_and_zone() -> None:
    noon = datetime(2026, 11, 21, 12, tzinfo=UTC)
    first = row(Firing("S", "go", "me", "r", {"a": 1, "b": 2}, noon), INSTANCE, limit_bytes=LIMIT)
    east = noon.astimezone(timezone(timedelta(hours=5)))
    again = row(Firing("T", "go", "me", "r", {"b": 2, "a": 1}, east), INSTANCE, limit_bytes=LIMIT)
    assert first["fingerprint"] == again["fingerprint"]


@pytest.mark.parametrize(
    "other",
    [
        Firing("S", "stop", "me", "r"),
        Firing("S", "go", "you", "r"),
        Firing("S", "go", "me", "r", {"a": 1}),
        Firing("S", "go", "me", "r", {}, timedelta(seconds=5)),
    ],
    ids=["trigger", "by", "data", "after"],
)
def test_any_other_body_has_another_fingerprint(other: Firing) -> None:
    same = row(Firing("S", "go", "me", "r"), INSTANCE, limit_bytes=LIMIT)
    assert row(other, INSTANCE, limit_bytes=LIMIT)["fingerprint"] != same["fingerprint"]


def test_requests_without_an_id_get_one_each() -> None:
    ids = {row(Firing("S", "go", "me"), INSTANCE, limit_bytes=LIMIT)["request_id"] for _ in range(100)}
    assert len(ids) == 100


@pytest.mark.parametrize(
    "value",
    [
        [1],
        "text",
        {"n": float("nan")},
        {"n": float("inf")},
        {"x": {1, 2}},
        {"x": "a\x00b"},
        {"x": "\ud800"},
        {"x": "y" * LIMIT},
    ],
    ids=["list", "text", "nan", "inf", "set", "nul", "surrogate", "size"],
)
def test_what_postgresql_cannot_keep_is_refused_before_it_is_asked(value: object) -> None:
    with pytest.raises(BadInput, match="data"):
        checked("data", value, LIMIT)  # type: ignore[arg-type]


def test_what_nests_without_end_is_refused() -> None:
    deep: dict[str, object] = {}
    for _ in range(20_000):
        deep = {"x": deep}
    with pytest.raises(BadInput, match="data"):
        checked("data", deep, 10_000_000)


@given(
    st.dictionaries(st.text(max_size=5), st.integers() | st.booleans() | st.none() | st.text(max_size=5), max_size=4)
)
def test_what_is_accepted_is_kept_as_it_is(value: dict[str, object]) -> None:
    try:
        kept = checked("data", value, LIMIT)
    except BadInput:
        assert any("\x00" in f"{key}{each}" for key, each in value.items())
    else:
        assert json.loads(json.dumps(kept)) == value


def test_an_instant_without_a_zone_is_refused() -> None:
    naive = datetime(2026, 11, 21)
    with pytest.raises(BadInput, match="no time zone"):
        row(Firing("S", "go", "me", after=naive), INSTANCE, limit_bytes=LIMIT)
