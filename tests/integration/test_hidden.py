"""Commands without a sandbox are the user who runs Interlock: all the same they cannot look into what runs it.

Nor do other users read or list anything in that user's home (as root's: `test_strange_folder`).
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil
import pytest

from interlock.supervisor.environment import PYTHON, environment
from interlock.supervisor.home import home_of
from interlock.supervisor.processes import status
from interlock.supervisor.processes.loop import data_places
from interlock.supervisor.processes.specs import SERVER_PARTS
from interlock.workers.settings import Settings
from interlock.workers.system import process_privacy
from tests.closed_homes import mode, open_entries
from tests.homes import open_directory
from tests.waiting import eventually

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are hidden on Linux only"),
    pytest.mark.skipif(os.geteuid() == 0, reason="of root's, commands are another user; test_as_an_ordinary_user"),
]
READY_SECONDS = 90.0
PLAN = "name: small\nworkstreams: [{id: one, tasks: [{id: only, command: ['true']}]}]\n"
KNOWN = {"il-reaper", "il-beat", "il-flower", "il-metrics", "il-triggers1"}
# Prints which of a process's things the command could get at.
LOOKS = """
import ctypes, json, os, sys
def opened(name):
    with open(f"/proc/{pid}/{name}", "rb") as file:
        return name == "mem" or file.read(1)
def traced():
    return ctypes.CDLL(None).ptrace(0x4206, pid, 0, 0) == 0  # PTRACE_SEIZE
def tried(what):
    try:
        return bool(what())
    except OSError:
        return False
found = {}
for pid in [os.getppid(), *map(int, sys.argv[1:])]:
    ways = {name: lambda name=name: opened(name) for name in ("environ", "mem", "maps")}
    ways |= {"descriptors": lambda: os.listdir(f"/proc/{pid}/fd"), "directory": lambda: os.readlink(f"/proc/{pid}/cwd")}
    found[pid] = [name for name, way in {**ways, "ptrace": traced}.items() if tried(way)]
print(json.dumps(found))
"""
RUNS = """
import json, sys
from pathlib import Path
from interlock.workers.isolation.boundary import isolated
from interlock.workers.sandbox.sandbox import View
from interlock.workers.execution.command import Command
from interlock.workers.execution.process import run
from interlock.workers.settings import settings
command = Command((sys.executable, "-I", "-S", "-c", *sys.argv[1:]), Path("/"), timeout_seconds=60)
ended = run(isolated(command, View(), settings()))
print(ended.stdout or ended)
"""


class Up:
    """`interlock up` of whoever runs the tests."""

    def __init__(self, directory: Path, **chosen: object) -> None:
        self.settings = Settings(home=directory / "home", sandbox="off", **chosen)  # type: ignore[arg-type]
        self.home = home_of(self.settings)

    def start(self, *words: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [*PYTHON, *words],
            env={**environment(self.settings), "HOME": "/nonexistent", "SECRET_OF_THE_WORKER": "horse"},
            cwd="/",
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            umask=0,  # a careless one
        )

    def run(self, *words: str) -> str:
        with self.start(*words) as process:
            said, _ = process.communicate(timeout=READY_SECONDS)
        assert process.returncode == 0
        return str(said)

    def cli(self, *words: str) -> str:
        return self.run("-m", "interlock.cli.main", *words)

    def part(self, name: str) -> psutil.Process:
        return next(psutil.Process(each["pid"]) for each in status.recorded(self.home) if each["name"] == name)

    def supervisor(self) -> psutil.Process:
        return psutil.Process(json.loads(self.home.processes.read_text())["supervisor"])

    def ours(self) -> dict[int, str]:
        """Every process of it that is a program of ours, and what it is."""
        servers = [self.part(name).pid for name in SERVER_PARTS]
        above = self.supervisor()
        servers.append(self.part("commands").pid)  # executed without the environment and the memory of these
        below = [each for each in above.children() if each.pid not in servers]
        pools = [child for each in below for child in each.children(recursive=True)]
        return {each.pid: " ".join((each.name(), *each.cmdline())) for each in (above, *below, *pools)}

    def seen(self, *pids: int) -> dict[int, list[str]]:
        """What a command run without a sandbox can see of them, and, first, of its shim."""
        told = json.loads(self.run("-c", RUNS, LOOKS, *map(str, pids)))
        return {int(pid): found for pid, found in told.items()}


@pytest.fixture(scope="module")
def installation() -> Iterator[Up]:
    """One that has carried out a plan and taken a backup. Gone afterwards."""
    with open_directory() as directory:
        made = Up(directory)
        (directory / "plan.yaml").write_text(PLAN)
        for words in (("up", "--detach"), ("run", str(directory / "plan.yaml")), ("backup", "take")):
            made.cli(*words)
        yield made
        made.cli("down", "--purge", "--yes")


@pytest.fixture
def up(installation: Up) -> Up:
    """With every part running; tests may kill them."""
    if not status.status(installation.settings).running:
        installation.cli("up", "--detach")
    return installation


def test_a_command_without_a_sandbox_looks_into_nothing_that_runs_it(up: Up) -> None:
    ours = up.ours()
    assert _named(ours.values()) >= KNOWN
    assert len(ours) > len(status.recorded(up.home)), "pool processes are among them"
    other = up.start("-c", "import time; time.sleep(300)")
    try:
        found = up.seen(*ours, other.pid)
    finally:
        other.kill()
        other.communicate()
    assert {"environ", "maps", "descriptors", "directory"} <= set(found.pop(other.pid)), "the attempts work"
    assert {ours.get(pid, "its shim"): ways for pid, ways in found.items() if ways} == {}


def test_nobody_else_reads_or_lists_anything_in_an_ordinary_users_home(up: Up) -> None:
    assert list(open_entries(up.home.path)) == []
    assert mode(up.home.path / "backups") & 0o077 == 0
    assert {(data.owner(), mode(data)) for data in data_places(up.home)} == {(Path.home().owner(), 0o700)}


def test_who_hides_is_a_stray_of_its_home_by_its_command_line(up: Up) -> None:
    """Stopped, they do not hear that their supervisor died; its shim, which would end them, is killed too."""
    left = [up.part("metrics"), *up.part("gates").children(), up.part("gates")]
    above = up.supervisor()
    shims = [each for each in above.children() if each.name() == "il-reaper"]
    for each in (*left, *shims):
        each.send_signal(signal.SIGSTOP)
    for each in (*shims, above):
        each.kill()
    eventually(lambda: not above.is_running() or above.status() == psutil.STATUS_ZOMBIE)
    assert all(each.is_running() for each in left)
    up.cli("down")
    assert [each for each in left if each.is_running() and each.status() != psutil.STATUS_ZOMBIE] == []


HIDES = """
import time
from interlock.workers.system import process_privacy
from interlock.workers.settings import settings
process_privacy.hide(settings())
print("hidden", flush=True)
time.sleep(300)
"""


@pytest.mark.parametrize(("dumpable", "seen"), [(False, set()), (True, {"environ", "maps"})])
def test_an_operator_can_have_them_looked_into(dumpable: bool, seen: set[str]) -> None:
    with open_directory() as directory:
        made = Up(directory, dumpable=dumpable)
        with made.start("-c", HIDES) as process:
            assert process.stdout
            assert process.stdout.readline() == "hidden\n"
            found = set(made.seen(process.pid)[process.pid])
            process.kill()
    assert found >= seen
    assert bool(found) == dumpable


def test_a_command_line_names_a_home() -> None:
    assert process_privacy.marked_home(["python", *process_privacy.marked("/a b"), "-m", "celery"]) == "/a b"
    assert process_privacy.marked_home(["python", "interlock=/a", "-X"]) is None


def _named(lines: Iterable[str]) -> set[str]:
    return {name for line in lines for name in KNOWN if name in line}
