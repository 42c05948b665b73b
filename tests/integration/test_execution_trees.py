"""Nothing of a command outlives it: no daemon, not after a timeout, a cancel, a fault, the death of who asked."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pytest

from interlock.workers.execution.command import Command
from interlock.workers.execution.process import ShimLost, run, running
from interlock.workers.execution.result import Finished
from interlock.workflows.errors import StaleLease
from tests.shims import shim, shims
from tests.waiting import eventually

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[2]

# A shell that starts what leaves it in every way there is: `leave` forks twice with a session of its own between.
LEAVE = (
    "import os, signal, sys\n"
    "if os.fork(): os._exit(0)\n"
    "os.setsid()\n"
    "if os.fork(): os._exit(0)\n"
    "os.setpgid(0, 0)\n"
    "if sys.argv[1] == 'deaf': signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "open(f'there.{sys.argv[1]}', 'w').close()\n"
    "signal.pause()\n"
)
DAEMONS = (
    f"leave() {{ '{sys.executable}' -I -S -c \"$LEAVE\" $1 & }}\n"
    "leave deaf; leave meek; sleep 300 & (sleep 301 &)\n"
    "until test -e there.deaf -a -e there.meek; do sleep 0.02; done\n"
)


class Marked:
    """Commands in a directory of their own whose processes are told from all others by their environment."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.mark = uuid4().hex

    def command(self, line: str, **asked: Any) -> Command:
        given = {"timeout_seconds": 20, "grace_seconds": 0.4, "env": {"MARK": self.mark, "LEAVE": LEAVE}, **asked}
        return Command(argv=(line,), cwd=self.directory, shell=True, **given)  # noqa: S604 - the lines are our own

    def run(self, line: str, **asked: Any) -> Finished:
        return run(self.command(line, **asked))

    def alive(self) -> list[psutil.Process]:
        return [process for process in psutil.process_iter() if self._ours(process)]

    def _ours(self, process: psutil.Process) -> bool:
        try:
            marked: bool = process.environ().get("MARK") == self.mark
            return marked and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False


@pytest.fixture
def marked(tmp_path: Path) -> Iterator[Marked]:
    """Its processes must be gone when the test is over, and so must every shim of this process."""
    made = Marked(tmp_path)
    yield made
    left = made.alive()
    for process in left:
        process.kill()
    assert left == []
    assert shims() == []


def test_a_timeout_ends_the_whole_tree_with_its_daemons(marked: Marked) -> None:
    ended = marked.run(f"{DAEMONS} touch all; wait", timeout_seconds=4)
    assert (marked.directory / "all").exists(), ended.stderr
    assert (ended.timed_out, ended.exit_code, ended.survivors) == (True, 128 + signal.SIGTERM, 0)
    assert 4 <= ended.duration_seconds < 20
    assert marked.alive() == []


def test_who_ignores_sigterm_gets_the_grace_and_then_sigkill(marked: Marked) -> None:
    ended = marked.run("trap '' TERM; while :; do sleep 0.05; done", timeout_seconds=1, grace_seconds=0.5)
    assert (ended.timed_out, ended.signal, ended.exit_code) == (True, signal.SIGKILL, 137)
    assert 1.5 <= ended.duration_seconds < 20


def test_who_hears_sigterm_may_tidy_up_within_the_grace(marked: Marked) -> None:
    tidy = "trap 'echo tidied; exit 7' TERM; while :; do sleep 0.05; done"
    ended = marked.run(tidy, timeout_seconds=1.5, grace_seconds=30)
    assert (ended.timed_out, ended.exit_code, ended.stdout) == (True, 7, "tidied\n")
    assert ended.duration_seconds < 20
    assert not ended.succeeded(expected=(7,))


def test_what_is_stopped_hears_sigterm_too(marked: Marked) -> None:
    ended = marked.run("kill -STOP $$", timeout_seconds=0.3, grace_seconds=30)
    assert (ended.timed_out, ended.signal) == (True, signal.SIGTERM)
    assert ended.duration_seconds < 20


def test_what_a_command_leaves_behind_is_ended_and_counted(marked: Marked) -> None:
    ended = marked.run(f"{DAEMONS} exit 0")
    assert (ended.exit_code, ended.timed_out, ended.left_behind) == (0, False, 3)
    assert ended.succeeded()
    assert ended.duration_seconds < 20


def test_a_grandchild_that_holds_the_output_does_not_hold_us(marked: Marked) -> None:
    ended = marked.run("echo first; sleep 300 & exit 6")
    assert (ended.exit_code, ended.stdout, ended.left_behind) == (6, "first\n", 1)
    assert ended.duration_seconds < 20


def test_who_only_needs_a_moment_longer_gets_it(marked: Marked) -> None:
    ended = marked.run("(sleep 0.15; echo late) & exit 0", grace_seconds=10)
    assert (ended.stdout, ended.left_behind) == ("late\n", 0)
    assert ended.duration_seconds < 20


def test_an_orphan_that_ended_is_reaped_while_the_command_runs(marked: Marked) -> None:
    with running(marked.command("(touch one & touch two &); exec sleep 300")) as begun:
        for orphan in ("one", "two"):
            eventually((marked.directory / orphan).exists)
        eventually(lambda: [child.name() for child in shim().children(recursive=True)] == ["sleep"])
        begun.cancel()


def test_a_cancel_ends_the_tree_after_the_grace(marked: Marked) -> None:
    ready = marked.directory / "there.deaf"
    ended = run(marked.command(f"{DAEMONS} wait"), cancelled=ready.exists, tick_seconds=0.05)
    assert (ended.cancelled, ended.timed_out, ended.exit_code) == (True, False, 128 + signal.SIGTERM)
    assert ended.duration_seconds < 20
    assert not ended.succeeded()


def test_a_cancel_that_comes_too_late_does_not_hide_the_end(marked: Marked) -> None:
    with running(marked.command("touch up; exec sleep 300")) as begun:
        eventually((marked.directory / "up").exists)
        watching = shim()
        command = watching.children()[0]
        watching.suspend()
        begun.cancel()
        begun.cancel()
        command.kill()
        eventually(lambda: command.status() == psutil.STATUS_ZOMBIE)
        watching.resume()
        begun.tend(5)
        assert begun.finished().signal == signal.SIGKILL


def test_a_tick_that_raises_ends_the_tree_at_once_and_is_raised(marked: Marked) -> None:
    def beat() -> None:
        if (marked.directory / "there.deaf").exists():
            raise StaleLease

    began = time.monotonic()
    with pytest.raises(StaleLease):
        run(marked.command(f"{DAEMONS} wait", grace_seconds=60), on_tick=beat, tick_seconds=0.05)
    assert time.monotonic() - began < 30
    assert marked.alive() == []


def test_the_time_limit_does_not_wait_for_a_slow_tick(marked: Marked) -> None:
    ended_by: list[bool] = []

    def slow() -> None:
        ended_by.append(bool(eventually(lambda: marked.alive() == [])))

    ended = run(marked.command("sleep 300", timeout_seconds=0.5), on_tick=slow, tick_seconds=0.1)
    assert ended_by[0]
    assert (ended.timed_out, ended.duration_seconds < 20) == (True, True)


# Runs one command as a worker's process does. With `fork`, a fork without exec keeps a copy of all it has open.
RUNNER = """
import fcntl, os, signal, sys
from pathlib import Path
from interlock.workers.execution.command import Command
from interlock.workers.execution.process import run

line, fork = sys.argv[1:]
def tick():
    if fork and not os.path.exists("forked"):
        if (pid := os.fork()) == 0:
            signal.pause()
        Path("fork").write_text(str(pid))
        os.rename("fork", "forked")
env = {name: os.environ[name] for name in ("MARK", "LEAVE")}
lock = os.open("lock", os.O_RDWR | os.O_CREAT)
fcntl.flock(lock, fcntl.LOCK_EX)
asked = Command((line,), Path.cwd(), shell=True, env=env, grace_seconds=60)
run(asked, on_tick=tick, tick_seconds=0.05, keep=(lock,))
"""


@pytest.fixture
def start_runner(marked: Marked) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts that program and waits for the command's daemons."""
    started: list[subprocess.Popen[bytes]] = []

    def start(line: str = DAEMONS, fork: str = "") -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "MARK": marked.mark, "LEAVE": LEAVE}
        program = [sys.executable, "-c", RUNNER, f"{line} touch all; wait", fork]
        started.append(subprocess.Popen(program, cwd=marked.directory, env=environment))
        eventually((marked.directory / "all").exists)
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_when_who_asked_is_killed_the_whole_tree_is_gone(
    marked: Marked, start_runner: Callable[..., subprocess.Popen[bytes]]
) -> None:
    runner = start_runner()
    assert len(marked.alive()) >= 6  # it, the shell, two daemons, two sleeps; the shim has no environment
    runner.kill()
    eventually(lambda: runner.poll() is not None and marked.alive() == [])


def test_a_lock_that_is_kept_lasts_until_the_tree_is_gone_and_the_command_has_no_part_in_it(
    marked: Marked, start_runner: Callable[..., subprocess.Popen[bytes]]
) -> None:
    runner = start_runner(f"ls -l /proc/self/fd > descriptors; {DAEMONS}")
    held = psutil.Process(runner.pid).children()[0]
    held.suspend()
    runner.kill()
    runner.wait()
    with (marked.directory / "lock").open() as lock:
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert marked.alive() != []
        held.resume()
        fcntl.flock(lock, fcntl.LOCK_EX)
    assert marked.alive() == []
    assert "/lock" not in (marked.directory / "descriptors").read_text()


def test_who_leaves_before_hearing_of_the_start_ends_the_tree_too(marked: Marked) -> None:
    with running(marked.command(f"{DAEMONS} touch all; wait", grace_seconds=60)):
        eventually((marked.directory / "all").exists)
    assert marked.alive() == []


def test_a_fork_of_who_asked_does_not_keep_the_tree_alive(
    marked: Marked, start_runner: Callable[..., subprocess.Popen[bytes]]
) -> None:
    runner = start_runner(fork="yes")
    fork = int(eventually((marked.directory / "forked").read_text))
    runner.kill()
    try:
        eventually(lambda: [process.pid for process in marked.alive()] == [fork])
    finally:
        os.kill(fork, signal.SIGKILL)
    eventually(lambda: marked.alive() == [])


def test_a_ctrl_c_for_who_asked_ends_the_tree_through_its_exception(
    marked: Marked, start_runner: Callable[..., subprocess.Popen[bytes]]
) -> None:
    runner = start_runner()
    runner.send_signal(signal.SIGINT)
    assert runner.wait(30) != 0
    assert marked.alive() == []


def test_a_shim_that_is_asked_to_end_cancels_its_command(marked: Marked) -> None:
    def ask() -> None:
        for each in shims():
            each.terminate()

    ended = run(marked.command("sleep 300"), on_tick=ask, tick_seconds=0.3)
    assert (ended.cancelled, ended.signal) == (True, signal.SIGTERM)


def test_a_shim_that_is_killed_takes_the_command_along_and_is_a_fault(marked: Marked) -> None:
    def murder() -> None:
        if (marked.directory / "up").exists():
            for each in shims():
                each.kill()

    with pytest.raises(ShimLost, match="hello"):
        run(marked.command("echo hello; sleep 300 & touch up; sleep 301"), on_tick=murder, tick_seconds=0.05)
    eventually(lambda: marked.alive() == [])


def test_a_command_dies_with_its_shim_even_if_nobody_is_left_to_see_it(
    marked: Marked, start_runner: Callable[..., subprocess.Popen[bytes]]
) -> None:
    runner = start_runner("touch all; exec sleep 300;")
    runner.send_signal(signal.SIGSTOP)
    psutil.Process(runner.pid).children()[0].kill()
    eventually(lambda: [process.pid for process in marked.alive()] == [runner.pid])


def test_a_busy_brood_of_forks_is_caught(marked: Marked) -> None:
    brood = (
        "import os, time\n"
        "end = time.monotonic() + 120\n"  # for who is there no more to catch it: this test may be killed
        "while time.monotonic() < end:\n"
        " if os.fork(): os._exit(0)\n"
        " os.setsid()"  # a new pid and session each round
    )
    ended = marked.run(f"'{sys.executable}' -I -S -c '{brood}' & exit 0", grace_seconds=0.1)
    assert (ended.exit_code, ended.stderr, ended.survivors) == (0, "", 0)
    assert ended.duration_seconds > 0.5  # it was there
    assert marked.alive() == []
