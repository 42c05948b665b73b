"""The times of schedules, and what becomes of missed ones, against a model that looks at every minute by itself."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from interlock.workflows.errors import BadInput
from interlock.workflows.schedules.times import ON_TIME, CatchUp, Cron, Interval, due, following, read_times

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
BERLIN, AZORES = ZoneInfo("Europe/Berlin"), ZoneInfo("Atlantic/Azores")  # there, a Sunday in March has no midnight
# Zones, each with days around which its clocks are moved: by an hour, in the year shown; or never.
SHIFTS = {
    "Europe/Berlin": (date(2026, 3, 28), date(2026, 10, 24)),
    "America/New_York": (date(2026, 3, 7), date(2026, 10, 31)),
    "America/St_Johns": (date(2026, 3, 7), date(2026, 10, 31)),
    "America/Sao_Paulo": (date(2018, 2, 17), date(2018, 11, 3)),  # at midnight, which one day lacks
    "Africa/Casablanca": (date(2026, 2, 14), date(2026, 3, 21)),  # the other way round
    "Atlantic/Azores": (date(2026, 3, 28), date(2026, 10, 24)),
    "Asia/Kathmandu": (date(2026, 2, 28),),
    "UTC": (date(2024, 2, 28),),
}


def values(field: str, low: int, high: int) -> set[int]:
    """What a field of an expression matches."""
    found = set[int]()
    for term in field.split(","):
        span, _, step = term.partition("/")
        first, _, last = (f"{low}-{high}" if span == "*" else span).partition("-")
        found |= set(range(int(first), int(last or first) + 1, int(step or 1)))
    return found


def on_day(day: date, days: str, weekdays: str) -> bool:
    """Whether a day matches: both fields, unless neither begins with a star; then one is enough."""
    wanted = day.day in values(days, 1, 31), (day.weekday() + 1) % 7 in {each % 7 for each in values(weekdays, 0, 7)}
    return all(wanted) if days.startswith("*") or weekdays.startswith("*") else any(wanted)


def model(cron: str, zone: ZoneInfo, after: datetime, until: datetime) -> list[datetime]:
    """The times in a span, found without the library, as SCHEDULE-7 has it."""
    minutes, hours, days, months, weekdays = cron.split()
    found = set[datetime]()
    if minutes.startswith("*") or hours.startswith("*"):  # by the clock on the wall, whenever that shows it
        instant = after.replace(second=0, microsecond=0)
        while (instant := instant + MINUTE) <= until:
            local = instant.astimezone(zone)
            if (
                local.minute in values(minutes, 0, 59)
                and local.hour in values(hours, 0, 23)
                and local.month in values(months, 1, 12)
                and on_day(local.date(), days, weekdays)
            ):
                found.add(instant)
        return sorted(found)
    day = after.astimezone(zone).date() - DAY
    while (day := day + DAY) <= until.astimezone(zone).date():
        if day.month not in values(months, 1, 12) or not on_day(day, days, weekdays):
            continue
        for hour in values(hours, 0, 23):
            for minute in values(minutes, 0, 59):
                local = datetime(day.year, day.month, day.day, hour, minute)
                while (instant := local.replace(tzinfo=zone).astimezone(UTC)).astimezone(zone).replace(
                    tzinfo=None
                ) != local:
                    local += MINUTE  # there is no such time that day: right after
                found.add(instant)
    return sorted(each for each in found if after < each <= until)


def terms(low: int, high: int) -> st.SearchStrategy[str]:
    """A field of an expression."""
    number = st.integers(low, high)
    both = st.lists(number, min_size=2, max_size=2, unique=True).map(sorted)
    span = both.map(lambda ends: f"{ends[0]}-{ends[1]}")
    step = st.builds("{}/{}".format, st.one_of(st.just("*"), span), st.integers(1, high))
    several = st.lists(number.map(str), min_size=1, max_size=4).map(",".join)
    return st.one_of(st.just("*"), several, span, step)


@st.composite
def spans(draw: st.DrawFn) -> tuple[Cron, datetime, datetime]:
    """An expression, a zone, and a span of up to three days in which its clocks may be moved."""
    zone = draw(st.sampled_from(sorted(SHIFTS)))
    begun = draw(st.sampled_from(SHIFTS[zone]))
    hours = st.one_of(terms(0, 23), st.sampled_from(["0", "1", "2", "3", "1-3", "0,2", "23"]))
    fields = [draw(terms(0, 59)), draw(hours), draw(st.one_of(st.just("*"), terms(1, 31)))]
    fields += [draw(st.one_of(st.just("*"), terms(1, 12))), draw(st.one_of(st.just("*"), terms(0, 7)))]
    after = datetime(begun.year, begun.month, begun.day, tzinfo=UTC) + timedelta(
        seconds=draw(st.integers(0, 86_400)), microseconds=draw(st.sampled_from([0, 1, 999_999]))
    )
    return Cron(" ".join(fields), ZoneInfo(zone)), after, after + timedelta(seconds=draw(st.integers(1, 3 * 86_400)))


def comes(cron: Cron) -> bool:
    """Whether an expression is accepted; not if no month has such a day."""
    try:
        read_times({"cron": cron.expression, "time_zone": cron.zone.key}, datetime(2026, 1, 1, tzinfo=UTC))
    except BadInput:
        return False
    return True


def until(times: Iterator[datetime], last: datetime) -> list[datetime]:
    """The times up to an instant."""
    found = list[datetime]()
    for each in times:
        if each > last:
            break
        found.append(each)
    return found


@given(spans())
@hypothesis_settings(max_examples=90)
@example((Cron("30 2 * * *", BERLIN), datetime(2026, 3, 28, 12, tzinfo=UTC), datetime(2026, 3, 30, 12, tzinfo=UTC)))
@example((Cron("* 0 * * 0", AZORES), datetime(2026, 3, 28, tzinfo=UTC), datetime(2026, 3, 29, 12, tzinfo=UTC)))
@example((Cron("* 1 * * 0", AZORES), datetime(2026, 3, 28, tzinfo=UTC), datetime(2026, 3, 29, 12, tzinfo=UTC)))
@example((Cron("*/7 1 * 3 0", AZORES), datetime(2026, 2, 28, tzinfo=UTC), datetime(2026, 3, 30, 12, tzinfo=UTC)))
@example((Cron("* 0-1 * * 0", AZORES), datetime(2026, 3, 28, tzinfo=UTC), datetime(2026, 3, 29, 12, tzinfo=UTC)))
@example((Cron("*/30 * * * *", BERLIN), datetime(2026, 10, 24, 22, tzinfo=UTC), datetime(2026, 10, 25, 4, tzinfo=UTC)))
def test_the_times_are_those_that_the_clocks_on_the_wall_show(span: tuple[Cron, datetime, datetime]) -> None:
    cron, after, last = span
    if not comes(cron):
        assert not model(cron.expression, cron.zone, after, last)
        return
    assert until(cron.after(after), last) == model(cron.expression, cron.zone, after, last)


@given(spans(), st.sampled_from(["skip", "one", "all"]), st.integers(1, 200_000))
@hypothesis_settings(max_examples=60)
def test_missed_times_are_skipped_made_up_for_once_or_all(
    span: tuple[Cron, datetime, datetime], policy: str, within: int
) -> None:
    cron, after, now = span
    assume(comes(cron))
    come = model(cron.expression, cron.zone, after, now)
    on_time = [each for each in come if now - each < ON_TIME]
    if policy == "all":
        reach = max(timedelta(seconds=within), ON_TIME)
        expected = [each for each in come if now - each < reach][-1_000:]
    elif policy == "one" and not on_time:
        expected = come[-1:]
    else:
        expected = on_time
    found = due(cron, CatchUp(policy, timedelta(seconds=within)), after=after, now=now)
    assert list(found.fires) == expected
    assert found.following == next(cron.after(now), None)
    if found.following:
        assert found.following > now
        assert not model(cron.expression, cron.zone, now, min(found.following - MINUTE, now + 2 * DAY))


@given(st.integers(1, 100_000), st.integers(-1_000_000, 1_000_000), st.integers(0, 300_000))
@hypothesis_settings(max_examples=90)
def test_an_interval_is_the_same_distance_every_time_whatever_the_clocks_show(
    every: int, offset: int, span: int
) -> None:
    start = datetime(2026, 3, 29, tzinfo=UTC)
    interval, after = Interval(timedelta(seconds=every), start), start + timedelta(seconds=offset)
    now = after + timedelta(seconds=span)
    number = 0 if after < start else int((after - start).total_seconds()) // every + 1
    expected = [start + (number + each) * timedelta(seconds=every) for each in range(3)]
    assert list(islice(interval.after(after), 3)) == expected
    found = due(interval, CatchUp("all"), after=after, now=now)
    count = 0 if expected[0] > now else int((now - expected[0]).total_seconds()) // every + 1
    assert found.following == expected[0] + count * timedelta(seconds=every)
    assert len(found.fires) <= min(count, 1_000)


def test_a_time_that_spring_skips_comes_right_after_and_one_that_autumn_repeats_comes_once() -> None:
    nightly = Cron("30 2 * * *", BERLIN)
    assert following(nightly, datetime(2026, 3, 28, 12, tzinfo=UTC), 2) == [
        datetime(2026, 3, 29, 1, 0, tzinfo=UTC),  # 03:00, where 02:30 would have been
        datetime(2026, 3, 30, 0, 30, tzinfo=UTC),
    ]
    assert following(nightly, datetime(2026, 10, 24, 12, tzinfo=UTC), 2) == [
        datetime(2026, 10, 25, 0, 30, tzinfo=UTC),  # the first 02:30
        datetime(2026, 10, 26, 1, 30, tzinfo=UTC),
    ]
    hourly = Cron("0 * * * *", BERLIN)
    begun = datetime(2026, 10, 24, 23, tzinfo=UTC)
    assert following(hourly, begun, 3) == [begun + timedelta(hours=number) for number in (1, 2, 3)], "both 02:00 count"


@pytest.mark.parametrize("policy", ["skip", "one", "all"])
def test_years_of_missed_minutes_are_settled_at_once(policy: str) -> None:
    now = datetime(2026, 11, 25, 21, tzinfo=UTC)
    found = due(Cron("* * * * *", BERLIN), CatchUp(policy), after=datetime(2016, 1, 1, tzinfo=UTC), now=now)
    assert found.fires[-1] == now
    assert len(found.fires) == (1_000 if policy == "all" else 1)
    assert found.following == now + MINUTE
