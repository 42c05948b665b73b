"""What is deleted with a home: all that Interlock made there, and nothing else, whatever lies or points there."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from interlock.supervisor import home_marker, purge
from interlock.supervisor.home import Home
from interlock.supervisor.home_marker import NotAHome
from interlock.supervisor.servers import data_dirs
from interlock.workers.system.safe_remove import remove
from interlock.workflows.errors import OthersHome
from tests.cli.terminal import Terminal

pytestmark = pytest.mark.integration
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home with a little of what Interlock makes in it."""
    made = Home(tmp_path / "home")
    made.create()
    for name in ("audit/exports/export-1", "worktrees/run/stream"):
        (made.path / name).mkdir(parents=True)
        (made.path / name / "file").touch()
    (made.path / "audit/exports/export-1").chmod(0o550)
    return made


@pytest.fixture
def others(tmp_path: Path) -> Path:
    """A directory of somebody's, with names that a home has too."""
    directory = tmp_path / "others"
    for name in ("archive", "keys", "logs"):
        (directory / name).mkdir(parents=True)
        (directory / name / "precious").write_text("kept")
    return directory


def contents(directory: Path) -> list[str]:
    return sorted(str(each.relative_to(directory)) for each in directory.rglob("*"))


def test_a_directory_that_interlock_never_made_is_never_deleted_from_nor_put_into(others: Path) -> None:
    before = contents(others)
    here = Terminal(others)
    for words in (("down", "--purge", "--yes"), ("up", "--detach")):
        refused = here.run(*words)
        assert refused.code == 2
        refused.is_one_clear_line("Interlock did not make it", "interlock up --adopt")
    with pytest.raises(NotAHome):
        purge.purge(Home(others))
    assert contents(others) == before


def test_what_is_adopted_is_a_home_and_only_its_entries_go(others: Path) -> None:
    (others / "thesis.tex").touch()
    Home(others).create(adopt=True)
    purge.purge(Home(others))
    assert contents(others) == [home_marker.NAME, "thesis.tex"]
    Home(others).create()  # still a home: what is left there does not keep it from being used again


def test_an_empty_directory_becomes_a_home_and_goes_with_it(tmp_path: Path) -> None:
    home = Home(tmp_path / "empty")
    home.path.mkdir()
    assert purge.purge(home) == []
    home.path.mkdir()
    home.create()
    assert (home.path / home_marker.NAME).stat().st_mode & 0o777 == 0o600
    purge.purge(home)
    assert not home.path.exists()


def test_a_purge_takes_sealed_files_too_and_leaves_what_is_not_ours(home: Home) -> None:
    (home.path / "backups").mkdir()
    purge.purge(home)
    assert contents(home.path) == [home_marker.NAME, "backups"]


def test_links_go_as_links(home: Home, others: Path) -> None:
    """Neither what they point to is deleted, nor are its permissions changed, whatever name the link has."""
    (others / "exports" / "export-2").mkdir(parents=True)
    (others / "exports" / "export-2").chmod(0o550)
    os.symlink(others / "logs", home.path / "keys")
    os.symlink(others / "exports" / "export-2", home.path / "audit/exports/export-2")
    os.symlink(others, home.path / "worktrees/run/stream/others")
    shutil.rmtree(home.path / "run")
    os.symlink(others, home.path / "run")
    before = contents(others)
    purge.purge(home)
    assert not home.path.exists()
    assert contents(others) == before
    assert (others / "exports" / "export-2").stat().st_mode & 0o777 == 0o550


def test_a_home_that_is_a_link_is_its_target_and_a_marker_that_is_a_link_is_none(home: Home, tmp_path: Path) -> None:
    (home.path / home_marker.NAME).rename(tmp_path / "marker")
    os.symlink(tmp_path / "marker", home.path / home_marker.NAME)
    for refused in (lambda: purge.purge(home), home.create):
        with pytest.raises(NotAHome):
            refused()
    assert (home.path / "audit").is_dir()


@as_root
def test_somebody_elses_home_is_refused(home: Home) -> None:
    os.chown(home.path / home_marker.NAME, 12345, 12345)
    for refused in (lambda: purge.purge(home), home.create):
        with pytest.raises(OthersHome):
            refused()
    assert (home.path / "audit").is_dir()


@as_root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives directories away")
@pytest.mark.parametrize("marked", [False, True])
def test_a_directory_of_another_user_becomes_no_home_of_roots(tmp_path: Path, marked: bool) -> None:
    """Its owner could put links in place of what is written there."""
    directory = tmp_path / "theirs"
    directory.mkdir()
    if marked:
        Home(directory).create()
    os.chown(directory, 61_234, 61_234)
    there = sorted(directory.rglob("*"))
    with pytest.raises(NotAHome, match=r"belongs to another user \(61234\).*`chown root -- /"):
        Home(directory).create()
    assert sorted(directory.rglob("*")) == there


def test_outside_of_it_only_what_says_that_it_is_this_homes_goes(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_dirs, "OUTSIDE", tmp_path / "outside")
    for name, owner in ((home.tag, home.path), (f"{home.tag}-then", home.path), (f"{home.tag}-not", tmp_path / "no")):
        (tmp_path / "outside" / name).mkdir(parents=True)
        (tmp_path / "outside" / name / data_dirs.OWNER).write_text(f"{owner}\n")
    purge.purge(home)
    assert os.listdir(tmp_path / "outside") == [f"{home.tag}-not"]


DEEP = """
import os, sys
os.chdir(sys.argv[1])
for _ in range(3000):
    os.mkdir("d"); os.chdir("d")
os.symlink(sys.argv[2], "out")
"""


def test_no_depth_is_too_deep_to_delete(tmp_path: Path, others: Path) -> None:
    subprocess.run([sys.executable, "-c", DEEP, tmp_path, others / "logs"], check=True)
    remove(tmp_path / "d")
    assert not (tmp_path / "d").exists()
    assert (others / "logs" / "precious").read_text() == "kept"


def test_the_demo_marks_the_directory_that_it_makes_its_own_in(tmp_path: Path) -> None:
    """Else `interlock up` would refuse the directory in which `make demo` was the first to run."""
    outer = Home(tmp_path / "home")
    outer.claim()
    Home(outer.path / "demo").create()
    outer.create()
