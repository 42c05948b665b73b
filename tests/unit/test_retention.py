"""Which backups expire: never the newest complete one, nor anything that is not complete or not ours."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from interlock.supervisor.backup.retention import expired
from interlock.workers.audit.backup_manifest import Manifest
from interlock.workers.audit.kept_backups import KeptBackup, name_of

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)


def backup(days: float, problem: str | None = None) -> KeptBackup:
    taken_at = NOW - timedelta(days=days)
    said = Manifest(taken_at.isoformat(), 18, "interlock", "0001", "interlock", "interlock", 0, 0, None, {}, {}, 0)
    return KeptBackup(Path(name_of(taken_at)), said, problem)


def stranger(days: float) -> KeptBackup:
    return KeptBackup(Path(name_of(NOW - timedelta(days=days))), None, "signed by somebody else")


def left(kept: list[KeptBackup], keep_last: int, keep_days: float) -> list[KeptBackup]:
    doomed = expired(kept, keep_last=keep_last, keep_days=keep_days, now=NOW)
    return [each for each in kept if each.path not in doomed]


def test_the_newest_are_kept_however_old_and_the_young_however_many() -> None:
    daily = [backup(day) for day in range(20)]
    assert left(daily, keep_last=7, keep_days=7) == daily[:7]
    assert left(daily, keep_last=3, keep_days=10) == daily[:10]
    hourly = [backup(hour / 24) for hour in range(100)]
    assert left(hourly, keep_last=7, keep_days=2) == hourly[:48]
    old = [backup(100 + day) for day in range(10)]
    assert left(old, keep_last=2, keep_days=7) == old[:2]


def test_the_oldest_goes_first() -> None:
    kept = [backup(day) for day in range(5)]
    assert expired(kept, keep_last=1, keep_days=0, now=NOW) == [each.path for each in kept[:0:-1]]


def test_what_is_damaged_or_anothers_or_of_the_future_neither_expires_nor_counts() -> None:
    future, cut, whole, theirs, older = backup(-1), backup(1, "cut"), backup(2), stranger(3), backup(4)
    assert left([future, cut, whole, theirs, older], keep_last=1, keep_days=0) == [future, cut, whole, theirs]


@given(
    st.lists(
        st.tuples(st.floats(-5, 400), st.sampled_from(("whole", "cut", "theirs"))),
        max_size=30,
        unique_by=lambda each: backup(each[0]).path,
    ),
    st.integers(1, 9),
    st.floats(0, 60),
)
def test_the_newest_complete_backup_never_expires(
    kinds: list[tuple[float, str]], keep_last: int, keep_days: float
) -> None:
    made = {"whole": backup, "cut": lambda days: backup(days, "cut"), "theirs": stranger}
    kept = sorted((made[kind](days) for days, kind in kinds), key=lambda each: each.path.name, reverse=True)
    doomed = set(expired(kept, keep_last=keep_last, keep_days=keep_days, now=NOW))
    whole = [each for each in kept if each.problem is None and each.taken_at and each.taken_at <= NOW]
    assert doomed <= {each.path for each in whole}
    assert not doomed & {each.path for each in whole[:keep_last]}
    assert all(
        each.taken_at and NOW - each.taken_at >= timedelta(days=keep_days) for each in whole if each.path in doomed
    )
