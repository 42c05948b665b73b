"""Anchors are copied to directories and through a command; a fault there stops nothing, and is caught up with."""

import errno
import os
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from interlock.db.audit.anchor_copies import lock
from interlock.db.connection import transaction
from interlock.workers import sweeps
from interlock.workers.audit import anchor_copies, anchors
from interlock.workers.audit.verify import verify
from interlock.workers.client.client import Client
from interlock.workers.operations.metrics import read
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from tests.doctoring import examined
from tests.driving import UP_TO_REVIEW, applied
from tests.tampering import unprotected

pytestmark = pytest.mark.integration
Dba = psycopg.Connection[Any]
Make = Callable[..., Runtime]


@pytest.fixture
def story(client: Client, project: str) -> UUID:
    made: UUID = client.create("story", "S-1", project=project)["id"]
    applied(client, made, *UP_TO_REVIEW)
    return made


@pytest.fixture
def one(tmp_path: Path) -> Path:
    place = tmp_path / "one"
    place.mkdir()
    return place


def program(tmp_path: Path, code: str, name: str = "program.py") -> str:
    """A command line that runs Python code; `OUT` is the path of a file in it."""
    file = tmp_path / name
    file.write_text(f"import os, sys, time\nOUT = {str(tmp_path / 'out')!r}\n{code}")
    return shlex.join([sys.executable, "-S", str(file)])


def names(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())


def copies(runtime: Runtime) -> list[tuple[int, int, bool]]:
    """Of each destination: the last anchor, how many are missing, and whether there is a fault."""
    with transaction(runtime.database) as connection:
        found = anchor_copies.states(connection, runtime.settings)
    return [(each.number, each.behind, each.error is not None) for each in found]


def anchored(runtime: Runtime, story: UUID, *triggers: str) -> None:
    """Move the story and make an anchor, which the sweep finds due."""
    applied(Client(runtime), story, *triggers)
    sweeps.SWEEPS["anchor"](runtime)


def test_each_anchor_is_copied_as_it_was_filed(make_runtime: Make, story: UUID, one: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    runtime = make_runtime(anchor_directories=(one, other), anchor_seconds=0.001)
    anchored(runtime, story, "block")
    anchored(runtime, story, "unblock")
    filed = anchors.directory(runtime)
    assert len(names(filed)) == 6
    for place in (one, other):
        assert names(place) == names(filed)
        assert all((place / name).read_bytes() == (filed / name).read_bytes() for name in names(filed))
    assert copies(runtime) == [(2, 0, False), (2, 0, False)]
    assert verify(runtime).ok


def test_the_command_gets_each_checkpoint_once_and_in_order(make_runtime: Make, story: UUID, tmp_path: Path) -> None:
    code = "open(OUT, 'a').write(os.environ['INTERLOCK_ANCHOR_NUMBER'] + '\\n' + sys.stdin.read())"
    runtime = make_runtime(anchor_commands=program(tmp_path, code), anchor_seconds=0.001)
    anchored(runtime, story, "block")
    first = anchors.checkpoint(runtime)
    anchored(runtime, story, "unblock")
    anchor_copies.copy_all(runtime)
    assert (tmp_path / "out").read_text() == f"1\n{first}2\n{anchors.checkpoint(runtime)}"
    assert copies(runtime) == [(2, 0, False)]


def test_a_destination_that_fails_stops_neither_anchors_nor_the_others_and_catches_up(
    make_runtime: Make, story: UUID, one: Path, tmp_path: Path
) -> None:
    gone = tmp_path / "gone"
    command = program(tmp_path, "sys.exit('no network' if not os.path.exists(OUT) else 0)")
    runtime = make_runtime(anchor_directories=(gone, Path("/proc"), one), anchor_commands=command, anchor_seconds=0.001)
    anchored(runtime, story, "block")
    anchored(runtime, story, "unblock")
    assert len(names(one)) == 6
    assert copies(runtime) == [(0, 2, True), (0, 2, True), (2, 0, False), (0, 2, True)]
    python = f"command {Path(sys.executable).name}"
    said = {each.message: each.level for each in examined(runtime, "copies")}
    assert said[f"2 anchors are not copied to {gone}: {gone} is no directory: mount or create it"] == "warn"
    assert said[f"2 anchors are not copied to {python}: ended with exit code 1: no network"] == "warn"
    assert said[f"anchors are copied to {one}, up to anchor 2"] == "ok"
    missing = "interlock_anchor_copies_missing"
    assert [read(runtime)[missing, (name,)] for name in (str(gone), str(one), python)] == [2.0, 0.0, 2.0]
    gone.mkdir()
    (tmp_path / "out").touch()
    sweeps.SWEEPS["anchor"](runtime)
    assert names(gone) == names(one)
    assert copies(runtime) == [(2, 0, False), (0, 2, True), (2, 0, False), (2, 0, False)]


def test_a_disk_that_is_full_leaves_no_half_of_an_anchor(
    make_runtime: Make, story: UUID, one: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = make_runtime(anchor_directories=(one,))
    anchors.anchor(runtime)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr("interlock.workers.system.write_once.os.fsync", full)
        anchor_copies.copy_all(runtime)
    assert names(one) == []
    assert copies(runtime) == [(0, 1, True)]
    anchor_copies.copy_all(runtime)
    assert names(one) == names(anchors.directory(runtime))


def test_a_full_disk_at_home_does_not_stop_the_copies(make_runtime: Make, story: UUID, one: Path) -> None:
    runtime = make_runtime(anchor_directories=(one,), audit=Path("/dev/null/audit"))
    with pytest.raises(OSError, match="/dev/null/audit"):
        sweeps.SWEEPS["anchor"](runtime)
    assert len(names(one)) == 3


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("time.sleep(600)", "no end after 0.5 s; it was killed"),
        ("os.kill(os.getpid(), 9)", "ended with exit code -9"),
        ("sys.exit(3)", "ended with exit code 3"),
    ],
)
def test_a_command_that_hangs_or_dies_is_a_fault_that_is_tried_again(
    make_runtime: Make, story: UUID, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, message: str
) -> None:
    monkeypatch.setattr(anchor_copies, "COMMAND_SECONDS", 0.5 if "sleep" in code else 30.0)
    runtime = make_runtime(anchor_commands=program(tmp_path, code))
    anchors.anchor(runtime)
    for _ in range(2):
        anchor_copies.copy_all(runtime)
        with transaction(runtime.database) as connection:
            (found,) = anchor_copies.states(connection, runtime.settings)
        assert (found.number, found.behind) == (0, 1)
        assert (found.error or "").startswith(message)


def test_a_program_that_is_not_there_is_a_fault(make_runtime: Make, story: UUID) -> None:
    runtime = make_runtime(anchor_commands="/no/such/program --now")
    anchors.anchor(runtime)
    anchor_copies.copy_all(runtime)
    assert copies(runtime) == [(0, 1, True)]


def test_no_shell_reads_the_command(make_runtime: Make, story: UUID, tmp_path: Path) -> None:
    command = f"{program(tmp_path, 'open(OUT, chr(119)).write(repr(sys.argv[1:]))')} '$HOME' ';' true"
    runtime = make_runtime(anchor_commands=command)
    anchors.anchor(runtime)
    anchor_copies.copy_all(runtime)
    assert (tmp_path / "out").read_text() == "['$HOME', ';', 'true']"


def test_each_of_several_commands_gets_each_checkpoint_and_one_that_fails_stops_no_other(
    make_runtime: Make, story: UUID, tmp_path: Path
) -> None:
    writes = "open(OUT + sys.argv[1], 'a').write(os.environ['INTERLOCK_ANCHOR_NUMBER'] + sys.stdin.read())"
    first, second = (f"{program(tmp_path, writes, f'{name}.py')} '{name};'" for name in ("a", "b"))
    fails = "/bin/sh -c 'exit 7'"
    runtime = make_runtime(anchor_commands=f"{first}; {fails};{second}", anchor_seconds=0.001)
    anchored(runtime, story, "block")
    checkpoint = anchors.checkpoint(runtime)
    assert [(tmp_path / f"out{name};").read_text() for name in ("a", "b")] == [f"1{checkpoint}"] * 2
    with transaction(runtime.database) as connection:
        found = anchor_copies.states(connection, runtime.settings)
    python = f"command {Path(sys.executable).name}"
    assert [(each.destination, each.number) for each in found] == [(python, 1), ("command sh", 0), (f"{python} 2", 1)]
    assert "exit code 7" in str(found[1].error)


@pytest.mark.parametrize("value", ["'", " ", "true; ;true", ";"])
def test_a_command_line_that_names_no_program_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match=r"command line|no program"):
        Settings(anchor_commands=value)


def test_two_processes_do_not_copy_the_same_anchor_at_once(make_runtime: Make, story: UUID, tmp_path: Path) -> None:
    runtime = make_runtime(anchor_commands=program(tmp_path, "open(OUT, 'a').write('x')"))
    anchors.anchor(runtime)
    with transaction(runtime.database) as connection:
        assert lock(connection, f"command {Path(sys.executable).name}") == 0
    with transaction(runtime.database) as connection:
        assert lock(connection, f"command {Path(sys.executable).name}") == 0
        anchor_copies.copy_all(runtime)
        assert not (tmp_path / "out").exists()
    anchor_copies.copy_all(runtime)
    assert (tmp_path / "out").read_text() == "x"


@pytest.mark.parametrize("keep", [0, 1])
def test_anchors_deleted_with_their_files_stand_elsewhere(
    make_runtime: Make, story: UUID, one: Path, dba: Dba, keep: int
) -> None:
    runtime = make_runtime(anchor_directories=(one,), anchor_seconds=0.001)
    anchored(runtime, story, "block")
    anchored(runtime, story, "unblock")
    with unprotected(dba, "anchor_heads", "anchors"):
        dba.execute("DELETE FROM anchor_heads WHERE number > %s", (keep,))
        dba.execute("DELETE FROM anchors WHERE number > %s", (keep,))
    for path in anchors.directory(runtime).iterdir():
        if keep == 0 or "000002" in path.name:
            path.unlink()
    found = {each.instance for each in verify(runtime).problems}
    assert found == {f"anchor {number}" for number in range(keep + 1, 3)}
    anchor_copies.copy_all(runtime)
    with transaction(runtime.database) as connection:
        assert "which this database does not have" in str(anchor_copies.states(connection, runtime.settings)[0].error)
    anchored(runtime, story, "block")  # takes the number of one that was deleted
    assert f"anchor {keep + 1}" in {each.instance for each in verify(runtime).problems}
    shutil.rmtree(one)
    verdict = verify(runtime)
    assert verdict.not_compared[0] == f"the anchors in {one}: there is no such directory now"
