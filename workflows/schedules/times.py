"""When a schedule fires: the times of a cron expression in a time zone, or of an interval (docs/spec/schedule.md)."""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from typing import Any
from zoneinfo import ZoneInfo

from interlock.workflows.errors import BadInput

ON_TIME = timedelta(seconds=60)  # a time that is no older is not missed yet (SCHEDULE-8)
MOST_TIMES = 1_000  # fired at once
WITHIN_SECONDS, MOST_WITHIN_SECONDS = 86_400, 604_800  # how far back `all` reaches: by default, at most
POLICIES = ("skip", "one", "all")
LONGEST_CRON = 200  # characters
MOST_SECONDS = 366 * 86_400  # of an interval
# Clocks there move by half an hour, and cronsim counts whole ones: it would leave times out.
HALF_HOURS = ("Australia/Lord_Howe", "Australia/LHI")
FIELDS = 5  # minute, hour, day of month, month, day of week


@dataclass(frozen=True, slots=True)
class Cron:
    """The times of a cron expression in a time zone."""

    expression: str
    zone: ZoneInfo

    def after(self, instant: datetime) -> Iterator[datetime]:
        """The times after an instant, ascending, in UTC. It ends where none comes within fifty years."""
        # Only who computes times needs cronsim, and most processes do not.
        from interlock.workflows.schedules.cron_times import CronTimes  # noqa: PLC0415

        last = instant
        for each in CronTimes(self.expression, instant.astimezone(self.zone)):
            found = each.astimezone(UTC)
            if found > last:  # local times that do not exist, one after the other, are the same instant
                yield (last := found)


@dataclass(frozen=True, slots=True)
class Interval:
    """The times `start`, `start + every`, and so on."""

    every: timedelta
    start: datetime

    def after(self, instant: datetime) -> Iterator[datetime]:
        """The times after an instant, ascending, in UTC."""
        number = max((instant - self.start) // self.every + 1, 0)
        while True:
            yield self.start + number * self.every
            number += 1


Times = Cron | Interval


@dataclass(frozen=True, slots=True)
class CatchUp:
    """What becomes of missed times (SCHEDULE-8): `skip`, `one` or `all`; `all` reaches back `within`."""

    policy: str = "one"
    within: timedelta = timedelta(seconds=WITHIN_SECONDS)


@dataclass(frozen=True, slots=True)
class DueTimes:
    """The times to fire now, ascending, and the next one; None: there is none."""

    fires: tuple[datetime, ...]
    following: datetime | None


def due(times: Times, catch_up: CatchUp, *, after: datetime, now: datetime) -> DueTimes:
    """Decide which times fire now.

    Args:
        times: of the schedule.
        catch_up: what becomes of missed times.
        after: the times up to this instant are settled.
        now: the times up to this instant have come.

    Returns:
        At most 1,000 times, the newest, and the first one after `now`.
    """
    first, second = [*islice(times.after(after), 2), None, None][:2]
    if first is None or first > now:
        return DueTimes((), first)
    if second is None or second > now:  # nearly always
        return DueTimes((first,) if now - first < _reach(catch_up) else (), second)
    fires = _between(times, max(after, now - ON_TIME), now)
    if catch_up.policy == "all":
        fires = _between(times, max(after, now - _reach(catch_up)), now)
    elif catch_up.policy == "one" and not fires:
        fires = _newest(times, after, now)
    return DueTimes(tuple(fires), next(times.after(now), None))


def _reach(catch_up: CatchUp) -> timedelta:
    """How old a time may be that is fired."""
    return {"skip": ON_TIME, "one": timedelta.max, "all": max(catch_up.within, ON_TIME)}[catch_up.policy]


def following(times: Times, after: datetime, count: int) -> list[datetime]:
    """The first `count` times after an instant."""
    return list(islice(times.after(after), count))


def _between(times: Times, after: datetime, until: datetime) -> list[datetime]:
    return list(deque(takewhile(lambda each: each <= until, times.after(after)), MOST_TIMES))


def _newest(times: Times, after: datetime, until: datetime) -> list[datetime]:
    """The newest time, looked for further and further back: expressions are computed forwards only."""
    back = ON_TIME
    while (begin := until - back) > after:
        if found := _between(times, begin, until):
            return found[-1:]
        back *= 8
    return _between(times, after, until)[-1:]


def read_times(value: object, born: datetime) -> Times:
    """The times that a schedule's `times` describe.

    Args:
        value: `{"cron": …, "time_zone": …}` or `{"every_seconds": …, "start": …}`.
        born: when the schedule was created, from which intervals without `start` count.

    Raises:
        BadInput: they describe none; the message says why.
    """
    if not isinstance(value, Mapping) or ("cron" in value) == ("every_seconds" in value):
        raise BadInput("times must be an object with either cron or every_seconds")
    if "cron" in value:
        _only(value, "cron", "time_zone")
        return _cron(value["cron"], value.get("time_zone", "UTC"))
    _only(value, "every_seconds", "start")
    every = value["every_seconds"]
    if type(every) is not int or not 1 <= every <= MOST_SECONDS:
        raise BadInput(f"every_seconds must be a whole number from 1 to {MOST_SECONDS:,}; got {every!r}")
    return Interval(
        timedelta(seconds=every), _instant(value["start"]) if "start" in value else born.replace(microsecond=0)
    )


def read_catch_up(value: object) -> CatchUp:
    """The policy that a schedule's `catch_up` names; None: the usual one.

    Raises:
        BadInput: it names none; the message says why.
    """
    if value is None:
        return CatchUp()
    if not isinstance(value, Mapping) or value.get("policy") not in POLICIES:
        raise BadInput(f"catch_up must be an object whose policy is one of {', '.join(POLICIES)}")
    if value["policy"] != "all":
        _only(value, "policy")
        return CatchUp(value["policy"])
    _only(value, "policy", "within_seconds")
    within = value.get("within_seconds", WITHIN_SECONDS)
    if type(within) is not int or not 1 <= within <= MOST_WITHIN_SECONDS:
        raise BadInput(f"within_seconds must be a whole number from 1 to {MOST_WITHIN_SECONDS:,}; got {within!r}")
    return CatchUp("all", timedelta(seconds=within))


def _cron(expression: object, zone: object) -> Cron:
    from cronsim import CronSim, CronSimError  # noqa: PLC0415 - see `Cron.after`

    if not isinstance(expression, str) or len(expression) > LONGEST_CRON or len(expression.split()) != FIELDS:
        raise BadInput(
            f"cron must have five fields (minute, hour, day of month, month, day of week), as in '0 3 * * 1-5'; got "
            f"{expression!r}"
        )
    made = Cron(expression, _zone(zone))
    try:
        begun = CronSim(expression, datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        raise BadInput(f"cron {expression!r}: {str(error).lower()}") from None
    if next(begun, None) is None:
        raise BadInput(f"cron {expression!r} never comes")
    return made


def _zone(name: object) -> ZoneInfo:
    if name in HALF_HOURS:
        raise BadInput(f"time_zone {name!r} is not supported: its clocks are moved by half an hour")
    try:
        if not isinstance(name, str) or name == "localtime":  # whose, depends on the host
            raise ValueError
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # OSError: a folder of zones
        raise BadInput(f"time_zone {name!r} is unknown: use a name such as Europe/Berlin or UTC") from None


def _instant(value: object) -> datetime:
    try:
        if isinstance(value, str) and (found := datetime.fromisoformat(value)).tzinfo and not found.microsecond:
            return found.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise BadInput(f"start must be an instant with a time zone, to the second (2026-11-21T15:00:00Z); got {value!r}")


def _only(value: Mapping[str, Any], *known: str) -> None:
    if unknown := [each for each in value if each not in known]:
        raise BadInput(f"unknown field {unknown[0]!r}; known: {', '.join(known)}")
