"""Backups on a schedule: one when it is due, the old ones go only after a good one, and a kill leaves no half."""

import contextlib
import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import psutil
import pytest

from interlock.supervisor import daemon, home_marker
from interlock.supervisor.backup import retention, schedule
from interlock.supervisor.backup.directory import LOCK, PARTIAL, exclusively
from interlock.supervisor.embedded import CELERY_PARTS
from interlock.supervisor.environment import environment
from interlock.supervisor.home import DRILL, home_of
from interlock.supervisor.processes import specs
from interlock.supervisor.servers import endpoints, postgres
from interlock.workers.audit import backup_drills, backup_manifest, signing_keys
from interlock.workers.audit.kept_backups import name_of, newest_first
from interlock.workers.operations.checks.evidence import check_backups
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from interlock.workers.system.ended_by import ended_by
from interlock.workers.system.safe_remove import remove
from tests import databases, homes
from tests.homes import installed, open_directory
from tests.signalled import Signalled
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
DAY = 86_400.0
FULL = """#!/bin/sh
for each; do case $each in --pgdata=*) mkdir "${each#--pgdata=}";; esac; done
echo 'pg_basebackup: error: could not write to compressed file: No space left on device' >&2
exit 1
"""


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """The home of an installation whose servers run."""
    with open_directory() as directory, installed(Settings(home=directory / "home")):
        yield directory / "home"


@pytest.fixture
def chosen(home: Path, place: Path) -> Settings:
    return Settings(
        home=home, backup_directory=place / "backups", backup_keep_last=2, backup_keep_days=7, backup_drill_seconds=0
    )


def listed(chosen: Settings) -> list[Path]:
    """What the directory of backups holds, the lock aside."""
    return sorted(each for each in chosen.backups_directory.iterdir() if each.name != LOCK)


def aged(chosen: Settings, backup: Path, days: float) -> Path:
    """Make a backup one that was taken earlier."""
    said = backup_manifest.read(backup, signing_keys.trusted_keys(chosen.signing_directory))
    taken_at = datetime.fromisoformat(said.taken_at) - timedelta(days=days)
    signer = signing_keys.signer(chosen.signing_directory, may_make=False)
    replace(said, taken_at=taken_at.isoformat()).write(backup, signer)
    return backup.rename(backup.with_name(name_of(taken_at)))


def copies(chosen: Settings, backup: Path, *days: float) -> list[Path]:
    """Earlier backups."""
    made = []
    for each in days:
        shutil.copytree(backup, backup.with_name("copy"))
        made.append(aged(chosen, backup.with_name("copy"), each))
    return made


def test_one_is_taken_when_the_newest_is_too_old_whoever_took_that(chosen: Settings) -> None:
    assert schedule.due_in(chosen) == 0
    assert schedule.take_if_due(chosen) == schedule.LOOK_SECONDS
    (first,) = listed(chosen)
    assert schedule.due_in(chosen) == pytest.approx(DAY, abs=60)
    schedule.take_if_due(chosen)
    assert listed(chosen) == [first]
    older = aged(chosen, first, 1)
    schedule.take_if_due(chosen)
    assert len(listed(chosen)) == 2
    assert older in listed(chosen)


def test_old_backups_go_and_nothing_else_does(chosen: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    schedule.take_if_due(chosen)
    (first,) = listed(chosen)
    kept, young, *old = copies(chosen, first, 2, 5, 8, 30)
    (cut,) = copies(chosen, first, 40)
    (cut / backup_manifest.BASE).write_bytes(b"cut")
    (theirs,) = copies(chosen, first, 50)
    signing_keys.make(chosen.home.parent / "theirs")
    other = signing_keys.signer(chosen.home.parent / "theirs", may_make=False)
    backup_manifest.read(theirs, None).write(theirs, other)
    named_so = chosen.backups_directory / "interlock-20200101T000000000000Z"
    named_so.mkdir()
    (chosen.backups_directory / "notes.txt").touch()
    shutil.rmtree(first)
    capsys.readouterr()
    schedule.take_if_due(chosen)
    (new,) = set(listed(chosen)) - {kept, young, cut, theirs, named_so, chosen.backups_directory / "notes.txt"}
    assert new > kept
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["event"] for each in told] == ["backup_taken", "backup_deleted", "backup_deleted"]
    assert [each["backup"] for each in told[1:]] == [str(each) for each in reversed(old)]


def test_on_a_full_disk_it_says_so_and_keeps_the_old_ones(
    chosen: Settings, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule.take_if_due(chosen)
    (first,) = listed(chosen)
    before = sorted([*copies(chosen, first, 20, 30), aged(chosen, first, 10)])
    (place / "pg_basebackup").write_text(FULL)
    (place / "pg_basebackup").chmod(0o755)
    monkeypatch.setattr(postgres, "programs", lambda: place)
    capsys.readouterr()
    assert schedule.take_if_due(chosen) == schedule.RETRY_SECONDS
    told = json.loads(capsys.readouterr().out)
    assert (told["event"], told["level"]) == ("backup_failed", "error")
    assert "No space left on device. Make room there" in told["error"]
    assert listed(chosen) == before


def test_a_stop_while_an_old_one_is_deleted_leaves_no_half_of_it(
    chosen: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule.take_if_due(chosen)
    (first,) = listed(chosen)
    kept = sorted(copies(chosen, first, 10, 20))

    def asked_to_end(path: Path) -> None:
        signal.raise_signal(signal.SIGTERM)
        remove(path)

    monkeypatch.setattr(retention, "remove", asked_to_end)
    keys = signing_keys.trusted_keys(chosen.signing_directory)
    with pytest.raises(SystemExit), ended_by({signal.SIGTERM}, code=0):
        retention.prune(chosen.backups_directory, keys, keep_last=1, keep_days=7)
    assert drafts(chosen) == []
    assert listed(chosen) == sorted([first, kept[-1]])


def test_while_another_is_written_it_waits_for_the_next_time(
    chosen: Settings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.supervisor.backup.directory.PATIENCE_SECONDS", 0.0)
    with exclusively(chosen.backups_directory):
        schedule.take_if_due(chosen)
    assert "another backup is being written" in capsys.readouterr().out
    assert listed(chosen) == []


def test_the_part_ends_when_it_is_asked_to_also_where_python_drops_that(
    chosen: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def take(_: Settings) -> float:
        Signalled()
        return DAY

    monkeypatch.setattr(schedule, "settings", lambda: chosen)
    monkeypatch.setattr(schedule, "take_if_due", take)
    monkeypatch.setattr(schedule.process_privacy, "hide", lambda _: None)  # of this process
    monkeypatch.setattr(schedule, "announce_ready", lambda: None)
    with pytest.raises(SystemExit) as ended:
        schedule.main()
    assert ended.value.code == 0


def test_the_part_takes_them_and_its_kill_leaves_no_half(place: Path) -> None:
    with homes.place(place) as own:
        chosen = own.settings(
            backup_directory=place / "backups",
            backup_every_seconds=0.2,
            backup_keep_last=3,
            backup_keep_days=0,
            backup_drill_seconds=0,
        )
        own.supervisors.append(daemon.launch(chosen, without=[each for each in CELERY_PARTS if each != "backups"]))
        databases.prepare(own.known.owner_url)
        eventually(lambda: whole(chosen))
        eventually(lambda: drafts(chosen), every=0.005)
        victim = psutil.Process(own.part("backups")["pid"])
        victim.kill()
        before = whole(chosen)
        eventually(lambda: own.part("backups")["restarts"] >= 1 and own.part("backups")["state"] == "ready", timeout=90)
        eventually(lambda: len(whole(chosen) - before) >= 3, timeout=90)  # one takes seconds on a busy machine
        assert own.stop()
        assert drafts(chosen) == []
        found = list(newest_first(chosen.backups_directory, signing_keys.trusted_keys(chosen.signing_directory)))
        assert [each.problem for each in found] == [None] * len(found)
        assert len(found) in (3, 4), "it may have been stopped before it deleted the oldest"
        assert own.processes() == []
        assert not [each for each in psutil.process_iter(["name"]) if writes_to(each, chosen)]


def whole(chosen: Settings) -> set[Path]:
    return set(chosen.backups_directory.glob("interlock-*"))


def drafts(chosen: Settings) -> list[Path]:
    return list(chosen.backups_directory.glob(f"{PARTIAL}*"))


def writes_to(process: psutil.Process, chosen: Settings) -> bool:
    with contextlib.suppress(psutil.Error):
        return any(word.startswith(f"--pgdata={chosen.backups_directory}") for word in process.cmdline())
    return False


def test_beside_the_data_the_first_is_due_after_a_period_and_three_are_kept(home: Path) -> None:
    chosen = Settings(home=home, backup_drill_seconds=0)
    born = (home / home_marker.NAME).stat().st_mtime
    assert schedule.due_in(chosen) == pytest.approx(born + DAY - time.time(), abs=60)
    schedule.take_if_due(chosen)
    assert not chosen.backups_directory.exists()
    try:
        os.utime(home / home_marker.NAME, (born - DAY, born - DAY))
        schedule.take_if_due(chosen)
        (first,) = listed(chosen)
        kept = [*copies(chosen, first, 3, 5), aged(chosen, first, 2)]
        copies(chosen, kept[-1], 10, 20)
        schedule.take_if_due(chosen)
        assert len(listed(chosen)) == 3
        assert {kept[0], kept[-1]} < {*listed(chosen)}, "the newest"
    finally:
        os.utime(home / home_marker.NAME, (born, born))
        shutil.rmtree(chosen.backups_directory, ignore_errors=True)


def test_beside_the_data_none_is_taken_that_would_leave_postgresql_without_room(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = Settings(home=home, backup_every_seconds=0.001, backup_drill_seconds=0)
    monkeypatch.setattr(schedule, "ROOM", 10**9)
    schedule.take_if_due(chosen)
    told = json.loads(capsys.readouterr().out)
    assert (told["event"], told["level"]) == ("backup_failed", "error")
    assert "Set INTERLOCK_BACKUP_DIRECTORY to a directory on another disk" in told["error"]
    assert not chosen.backups_directory.exists()


def test_a_new_backup_is_restored_and_verified_if_no_drill_went_well_for_long(
    chosen: Settings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    weekly = chosen.model_copy(update={"backup_drill_seconds": 7 * DAY})
    for name, value in environment(weekly).items():
        monkeypatch.setenv(name, value)
    schedule.take_if_due(weekly)
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["event"] for each in told] == ["backup_taken", "backup_drilled"]
    (made,) = newest_first(weekly.backups_directory, signing_keys.trusted_keys(weekly.signing_directory))
    drilled = backup_drills.last(weekly.backups_directory)
    assert drilled == backup_drills.LastDrill(made.path.name, ANY, None, ANY)
    assert backup_drills.proven_seconds(drilled) == pytest.approx(0, abs=120)
    assert not schedule.drill_is_due(weekly)
    assert not (chosen.home / DRILL).exists()
    aged(weekly, made.path, 2)
    schedule.take_if_due(weekly)
    assert '"backup_taken"' in (out := capsys.readouterr().out)
    assert "backup_drill" not in out, "one a week is enough"
    monkeypatch.setenv("INTERLOCK_BACKUP_DIRECTORY", str(weekly.backups_directory))
    damaged = next(
        iter(newest_first(weekly.backups_directory, signing_keys.trusted_keys(weekly.signing_directory)))
    ).path
    base = bytearray((damaged / backup_manifest.BASE).read_bytes())
    base[len(base) // 2] ^= 1
    (damaged / backup_manifest.BASE).write_bytes(base)
    schedule._drill(damaged)
    told_last = json.loads(capsys.readouterr().out)
    assert (told_last["event"], told_last["level"]) == ("backup_drill_failed", "error")
    assert "was changed after it was written" in told_last["error"]
    failed = backup_drills.last(weekly.backups_directory)
    assert failed
    assert (failed.backup, failed.proven_at) == (damaged.name, drilled.proven_at), "an earlier success is remembered"
    assert "was changed after it was written" in (failed.problem or "")


def test_doctor_says_plainly_that_nothing_is_backed_up(home: Path) -> None:
    def found(**changed: Any) -> tuple[str, str]:
        runtime = Runtime(Settings(home=home, **changed))
        try:
            (only,) = check_backups(runtime)
        finally:
            runtime.close()
        return only.level, only.message

    said = "nothing is backed up by itself (INTERLOCK_BACKUP_EVERY_SECONDS=0), and there is no complete backup"
    assert found(backup_every_seconds=0) == ("warn", said)
    assert found(backup_every_seconds=1e-9) == ("warn", "there is no complete backup")
    level, message = found()
    assert (level, message) == (
        "ok",
        f"there is no complete backup; backups are in {home / 'backups'}, beside the data",
    )


def test_backups_are_taken_of_the_embedded_database_only_unless_they_are_switched_off(place: Path) -> None:
    def kinds(**changed: Any) -> set[str]:
        chosen = Settings(home=place / "home", **changed)
        return {each.name for each in specs.celery_parts(home_of(chosen), chosen, endpoints.Servers())}

    assert "backups" in kinds()
    assert "backups" in kinds(backup_directory=place)
    assert "backups" not in kinds(backup_every_seconds=0)
    assert "backups" not in kinds(backup_directory=place, database_url="postgresql://elsewhere/x")
