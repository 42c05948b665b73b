"""Started in a folder full of traps, under a careless umask: nobody's code runs, and nobody else looks in."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import packages_distributions
from pathlib import Path

import psutil
import pytest

from interlock.supervisor.home import Home
from interlock.supervisor.processes import status
from interlock.supervisor.processes.loop import data_places
from interlock.workers.settings import Settings
from tests.closed_homes import mode, open_entries
from tests.homes import open_directory

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
INTERLOCK = Path(sys.executable).with_name("interlock")
READ_BY_TOOLS = {"sitecustomize", "usercustomize", "celeryconfig", "flowerconfig"}
PLAN = "name: small\nworkstreams: [{id: one, tasks: [{id: only, command: ['true']}]}]\n"


@dataclass(frozen=True)
class Folder:
    """Where every module that anybody might import lies, and tells of it."""

    path: Path
    fired: Path

    def lay(self) -> None:
        names = {*sys.stdlib_module_names, *packages_distributions(), *READ_BY_TOOLS}
        trap = f"import io, os\nwith io.open({str(self.fired)!r}, 'a') as told: told.write(__name__ + '\\n')\n"
        for name in names - {"io", "os"}:
            (self.path / f"{name}.py").write_text(trap)
        for package in ("interlock", "db", "workers", "cli"):
            (self.path / package).mkdir()
            (self.path / package / "__init__.py").write_text(trap)

    def said(self) -> list[str]:
        return self.fired.read_text().split() if self.fired.exists() else []

    def run(self, home: Path, *words: str, code: int | None = 0) -> str:
        chosen = {"HOME": str(home), "OPERATORS": "ann", "DUMPABLE": "true"}  # dumpable, to be looked into here
        environment = {**os.environ, **{f"INTERLOCK_{name}": value for name, value in chosen.items()}}
        done = subprocess.run(
            [str(INTERLOCK), *words],
            cwd=self.path,
            env=environment,
            umask=0,
            capture_output=True,
            text=True,
            check=False,
        )
        assert code in (None, done.returncode), done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    with open_directory() as directory:
        yield directory


@pytest.fixture(scope="module")
def folder(place: Path) -> Folder:
    made = Folder(place / "folder", place / "fired")
    made.path.mkdir()
    made.lay()
    return made


@pytest.fixture(scope="module")
def home(place: Path, folder: Folder) -> Iterator[Path]:
    """A whole installation, started in that folder, that has carried out a plan."""
    (place / "plan.yaml").write_text(PLAN)
    home = place / "home"
    try:
        folder.run(home, "up", "--detach")
        folder.run(home, "run", str(place / "plan.yaml"))
        folder.run(home, "backup", "take")
        yield home
    finally:
        folder.run(home, "down", "--purge", "--yes")


def test_no_code_of_the_current_folder_runs_in_any_part_or_command(home: Path, folder: Folder) -> None:
    subprocess.run([sys.executable, "-c", "import psutil, celery"], cwd=folder.path, check=True)
    assert sorted(folder.said()) == ["celery", "psutil"], "the traps work"
    folder.fired.unlink()
    assert len(status.status(Settings(home=home)).parts) == 14
    for words in (("migrate",), ("status",), ("runs",), ("audit", "verify"), ("metrics", "show")):
        folder.run(home, *words)
    folder.run(home, "doctor", code=None)
    assert folder.said() == []


def test_parts_search_no_folder_that_others_may_write(home: Path) -> None:
    for part in status.recorded(Home(home)):
        process = psutil.Process(part["pid"])
        if part["name"] not in ("postgres", "valkey"):
            assert process.cwd() == "/"
            assert process.environ()["PYTHONSAFEPATH"] == "1"


def test_nobody_else_reads_or_lists_anything_in_a_home(home: Path) -> None:
    assert list(open_entries(home)) == []
    assert (home / "backups").stat().st_mode & 0o077 == 0


def test_the_servers_data_is_theirs_alone(home: Path) -> None:
    assert {(data.owner(), mode(data)) for data in data_places(Home(home))} == {
        ("interlock" if os.geteuid() == 0 else Path.home().owner(), 0o700)
    }


def test_a_home_from_before_is_tightened_when_it_starts(tmp_path: Path) -> None:
    old = Home(tmp_path / "home")
    old.create()
    (tmp_path / "elsewhere").mkdir(mode=0o755)
    (old.path / "audit").symlink_to(tmp_path / "elsewhere")
    for name in ("logs", "archive", "keys", ".state", "backups"):
        (old.path / name).mkdir(exist_ok=True)
        (old.path / name).chmod(0o755)
    old.path.chmod(0o755)
    old.create()
    assert mode(old.path) == (0o711 if os.geteuid() == 0 else 0o700)
    for name in ("logs", "archive", "keys", ".state", "backups", "run"):
        assert mode(old.path / name) == 0o700
    assert mode(tmp_path / "elsewhere") == 0o755, "a link is not followed"
