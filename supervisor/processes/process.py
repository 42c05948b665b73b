"""One part as it runs: started, watched, started again when it ends, stopped when told."""

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

from supervisor.accounts import spawn_options
from supervisor.parts import Part

State = Literal["starting", "ready", "restarting", "stopped"]
FIRST_DELAY, LONGEST_DELAY, STEADY_SECONDS = 0.2, 10.0, 30.0
LAST_SIGNAL_SECONDS = 5.0
LOG_LIMIT_BYTES = 10_000_000
PR_SET_PDEATHSIG = 1  # prctl(2)
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None  # loaded here: after a fork is too late


@dataclass(frozen=True)
class Report:
    """What `status` shows of a part. `since` is when it entered its state, ISO 8601 UTC."""

    name: str
    state: State
    pid: int | None
    create_time: float | None
    restarts: int
    since: str
    detail: str


class Child:
    """The process of one part. For one thread only: the parent-death signal is bound to the forking one."""

    def __init__(self, part: Part, log: Path, changed: Callable[[], None]) -> None:
        self.part = part
        self.log = log
        self.state: State = "stopped"
        self.restarts = 0
        self.failures = 0  # ends in a row, none of them after a steady while
        self.detail = ""
        self._changed = changed
        self._process: subprocess.Popen[bytes] | None = None
        self._create_time: float | None = None
        self._started_at = 0.0  # monotonic, as the next one
        self._next_start_at = 0.0
        self._stop_until: float | None = None
        self._since = _now()

    def report(self) -> Report:
        """Its row in `processes.json`."""
        pid = self._process.pid if self._process else None
        return Report(self.part.name, self.state, pid, self._create_time, self.restarts, self._since, self.detail)

    def start(self) -> None:
        """Start the process; `tend` finds out when it is ready."""
        self.part.before()
        self._process = _spawn(self.part, self.log)
        self._create_time = _create_time(self._process.pid)
        self._started_at = time.monotonic()
        self._enter("starting", "")

    def tend(self) -> None:
        """One look: notice that it became ready, ended, or is due to start again."""
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

    def _ended(self, process: subprocess.Popen[bytes]) -> None:
        _signal_group(process.pid, signal.SIGKILL)  # pool processes do not outlive their node
        self._process = self._create_time = None
        steady = time.monotonic() - self._started_at >= STEADY_SECONDS
        self.failures = 1 if steady else self.failures + 1
        delay = min(FIRST_DELAY * 2 ** (self.failures - 1), LONGEST_DELAY)
        self._next_start_at = time.monotonic() + delay
        self._enter("restarting", f"{ending(process.returncode)}; again in {delay:.1f} s")

    def ask_to_stop(self) -> None:
        """Begin an orderly end; `finish_stop` completes it."""
        if self._process is not None:
            self._process.send_signal(self.part.stop_signal)
            self._stop_until = time.monotonic() + self.part.stop_seconds

    def finish_stop(self, hurried: bool = False) -> bool:
        """Whether it has ended. Past its time (or `hurried`) it gets the last signal, then SIGKILL."""
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
    """The last lines of a log, for an error message; empty where there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 8192))
            return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])
    except OSError:
        return ""


def _spawn(part: Part, log: Path) -> subprocess.Popen[bytes]:
    supervisor = os.getpid()

    def die_with_supervisor() -> None:
        # After the user was dropped, which would clear it; before exec, which keeps it (prctl(2)).
        if _LIBC is not None:
            _LIBC.prctl(PR_SET_PDEATHSIG, int(part.stop_signal), 0, 0, 0)
            if os.getppid() != supervisor:  # it died in between
                os._exit(1)

    with open_log(log) as output:
        process: subprocess.Popen[bytes] = subprocess.Popen(  # type: ignore[call-overload]
            part.command,
            env=dict(part.environment),
            cwd=part.directory,
            stdin=subprocess.PIPE if part.stdin else subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C is for the supervisor; SIGKILL reaches the whole group
            preexec_fn=die_with_supervisor,  # noqa: PLW1509 - the supervisor has one thread
            **spawn_options(part.account),
        )
    if process.stdin is not None:
        with (
            contextlib.suppress(BrokenPipeError),
            process.stdin as stdin,
        ):  # it ended at once: poll() will tell
            stdin.write(part.stdin.encode())
    return process


def open_log(log: Path) -> BinaryIO:
    """The log, opened to append; a large one is first set aside as `.1`, replacing the one before."""
    if log.exists() and log.stat().st_size > LOG_LIMIT_BYTES:
        log.replace(log.with_name(f"{log.name}.1"))
    return log.open("ab")


def trim_log(log: Path) -> None:
    """Set a large log's content aside as `.1` while its writer goes on: it appends, so it finds the file empty."""
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
