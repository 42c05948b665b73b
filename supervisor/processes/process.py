"""The process of one part: start it, watch it, restart it when it ends, stop it on request."""

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Literal

import psutil

from interlock.supervisor.environment import DIRECTORY, UMASK
from interlock.supervisor.orphans import PREFIX
from interlock.supervisor.processes.fork import Fork, fork, is_module, module
from interlock.supervisor.processes.spec import Part
from interlock.workers.system.users import spawn_options

State = Literal["starting", "ready", "restarting", "stopped"]
FIRST_DELAY, LONGEST_DELAY, STEADY_SECONDS = 0.2, 10.0, 30.0
LAST_SIGNAL_SECONDS = 5.0
LOG_LIMIT_BYTES = 10_000_000
PR_SET_PDEATHSIG = 1  # prctl(2)
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None  # loaded now, because it is too late after a fork


@dataclass(frozen=True)
class PartReport:
    """The state of a part, as `status` shows it. `since` is when it entered its state, ISO 8601 UTC."""

    name: str
    state: State
    pid: int | None
    create_time: float | None
    restarts: int
    since: str
    detail: str


class Child:
    """The process of one part. Use only one thread: the parent-death signal is bound to the thread that forks."""

    def __init__(self, part: Part, log: Path, changed: Callable[[], None]) -> None:
        self.part = part
        self.log = log
        self.state: State = "stopped"
        self.restarts = 0
        self.failures = 0  # ends in a row, each in less than STEADY_SECONDS
        self.detail = ""
        self._changed = changed
        self._process: subprocess.Popen[bytes] | Fork | None = None
        self._create_time: float | None = None
        self._started_at = 0.0  # monotonic, like the next one
        self._next_start_at = 0.0
        self._stop_until: float | None = None
        self._since = _now()

    def report(self) -> PartReport:
        """The part's row in `processes.json`."""
        pid = self._process.pid if self._process else None
        return PartReport(self.part.name, self.state, pid, self._create_time, self.restarts, self._since, self.detail)

    def start(self) -> None:
        """Start the process; `tend` detects when it is ready."""
        self.part.before()
        self._process = _spawn(self.part, self.log)
        self._create_time = _create_time(self._process.pid)
        self._started_at = time.monotonic()
        self._enter("starting", "")

    def tend(self) -> None:
        """Check once whether it became ready, ended, or is due to be restarted."""
        if self._process is None:
            if self.state == "restarting" and time.monotonic() >= self._next_start_at:
                self.restarts += 1
                self.start()
        elif self._process.poll() is not None:
            self._ended(self._process)
        elif self.state == "starting":
            self._look_ready(self._process.pid)
        else:
            trim_log(self.log)

    def _look_ready(self, pid: int) -> None:
        missing = self.part.waits_for(pid)
        if missing is None:
            self._enter("ready", "")
        elif missing != self.detail:
            self._enter("starting", missing)

    def _ended(self, process: subprocess.Popen[bytes] | Fork) -> None:
        _signal_group(process.pid, signal.SIGKILL)  # pool processes do not outlive their node
        self._process = self._create_time = None
        steady = time.monotonic() - self._started_at >= STEADY_SECONDS
        self.failures = 1 if steady else self.failures + 1
        delay = min(FIRST_DELAY * 2 ** (self.failures - 1), LONGEST_DELAY)
        self._next_start_at = time.monotonic() + delay
        self._enter("restarting", f"{ending(process.returncode or 0)}; again in {delay:.1f} s")

    def ask_to_stop(self) -> None:
        """Begin an orderly stop; `finish_stop` completes it."""
        if self._process is not None:
            self._process.send_signal(self.part.stop_signal)
            self._stop_until = time.monotonic() + self.part.stop_seconds

    def finish_stop(self, hurried: bool = False) -> bool:
        """Whether it has ended. After its time is over (or if `hurried`), send the last signal, then SIGKILL."""
        process = self._process
        if process is not None and process.poll() is None:
            if not hurried and self._stop_until and time.monotonic() < self._stop_until:
                return False
            process.send_signal(self.part.last_signal)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(LAST_SIGNAL_SECONDS)
        if process is not None:
            _signal_group(process.pid, signal.SIGKILL)
            process.wait()
        self._process = self._create_time = None
        self._enter("stopped", "")
        return True

    def _enter(self, state: State, detail: str) -> None:
        if state != self.state:
            self._since = _now()
        self.state, self.detail = state, detail
        self._changed()


def ending(returncode: int) -> str:
    """How a process ended, in words: `ended by SIGKILL`, `ended with code 1`."""
    if returncode < 0:
        with contextlib.suppress(ValueError):
            return f"ended by {signal.Signals(-returncode).name}"
    return f"ended with code {returncode}"


def tail(log: Path, lines: int = 8) -> str:
    """The last lines of a log, for an error message; empty if there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 8192))
            return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])
    except OSError:
        return ""


def _spawn(part: Part, log: Path) -> subprocess.Popen[bytes] | Fork:
    supervisor = os.getpid()

    def die_with_supervisor() -> None:
        # Must run after the change of user, which clears it, and before exec, which keeps it (prctl(2)).
        if _LIBC is not None:
            _LIBC.prctl(PR_SET_PDEATHSIG, int(part.stop_signal), 0, 0, 0)
            if os.getppid() != supervisor:  # the supervisor died in between
                os._exit(1)

    if is_module(part.command) and not part.executed:
        with open_log(log) as output:
            return fork(
                f"{PREFIX}{part.name}", module(part.command), part.environment, output, first=die_with_supervisor
            )
    with open_log(log) as output:
        process: subprocess.Popen[bytes] = subprocess.Popen(  # type: ignore[call-overload]
            part.command,
            env=dict(part.environment),
            cwd=part.directory or DIRECTORY,
            umask=UMASK,
            stdin=subprocess.PIPE if part.stdin else subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # so that Ctrl-C reaches only the supervisor, and SIGKILL the part's whole group
            preexec_fn=die_with_supervisor,  # noqa: PLW1509 - the supervisor has one thread
            **spawn_options(part.account),
        )
    if process.stdin is not None:
        # If it ended at once, poll() will report that.
        with contextlib.suppress(BrokenPipeError), process.stdin as stdin:
            stdin.write(part.stdin.encode())
    return process


def open_log(log: Path) -> BinaryIO:
    """Open the log for appending; a large one is first renamed to `.1`, replacing the previous `.1`."""
    if log.exists() and log.stat().st_size > LOG_LIMIT_BYTES:
        log.replace(log.with_name(f"{log.name}.1"))
    return log.open("ab")


def trim_log(log: Path) -> None:
    """Move a large log's content to `.1` while its process keeps writing: it appends, so it continues at the start."""
    with contextlib.suppress(FileNotFoundError):
        if log.stat().st_size > LOG_LIMIT_BYTES:
            shutil.copyfile(log, log.with_name(f"{log.name}.1"))
            os.truncate(log, 0)


def _signal_group(leader: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def _create_time(pid: int) -> float | None:
    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
