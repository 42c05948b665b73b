"""How a command ended, as a value; also for a command that never started, was killed, or timed out."""

import errno
import os
import signal
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from interlock.workers.execution.output import Capture, readable

CANNOT_RUN, NOT_FOUND = 126, 127  # as POSIX shells define them (sh, 2.8.2)
NO_DIRECTORY = "Can't chdir to "  # bubblewrap's message
ELSEWHERE = " in its sandbox, which has /usr and the directories that INTERLOCK_SANDBOX_READS names"
# Fields that the shim reports as they are.
REPORTED = ("timed_out", "cancelled", "duration_seconds", "cpu_seconds", "left_behind", "survivors", "limit")
SIGNALLED = 128  # POSIX shells add this to the signal's number (sh, 2.8.2)


@dataclass(frozen=True)
class Finished:
    """The end of one command.

    Attributes:
        exit_code: its own, or 128 + N when signal N ended it, 127 if there is no such program, 126 if it cannot run.
        signal: the number of the signal that ended it, if one did.
        started: False if it never ran; `stderr` says why.
        timed_out: it reached its time limit and was ended; whatever its exit code, it failed.
        cancelled: it was ended on request; it failed, too.
        started_at: when it started, UTC.
        ended_at: when the last of its processes had ended, UTC.
        duration_seconds: from `started_at` to `ended_at`.
        cpu_seconds: CPU time of its processes, as far as they were waited for.
        max_rss_bytes: the largest memory of any of its processes (including the fork of the shim: 8 MB).
        stdout: its standard output, as text that PostgreSQL can store.
        stderr: its standard error, likewise.
        stdout_truncated_bytes: how many bytes are missing in `stdout`.
        stderr_truncated_bytes: how many bytes are missing in `stderr`.
        left_behind: how many of its process groups still ran a moment after it had ended, and were ended.
        limit: a text on the limit that it reached; None: none that we know of.
        survivors: how many process groups no signal could end (asleep in the kernel, or another user's).
    """

    exit_code: int
    signal: int | None
    started: bool
    timed_out: bool
    cancelled: bool
    started_at: datetime
    ended_at: datetime
    duration_seconds: float
    cpu_seconds: float
    max_rss_bytes: int | None
    stdout: str
    stderr: str
    stdout_truncated_bytes: int = 0
    stderr_truncated_bytes: int = 0
    left_behind: int = 0
    survivors: int = 0
    limit: str | None = None

    def succeeded(self, expected: Collection[int] = (0,)) -> bool:
        """Whether it ran to its own end, with one of the `expected` exit codes (TASK-4)."""
        return self.started and not self.timed_out and not self.cancelled and self.exit_code in expected

    @property
    def reason(self) -> str:
        """How it ended, in one line for an operator."""
        if not self.started:
            return self.stderr
        if self.signal == signal.SIGKILL and self.limit:
            return f"ended: {self.limit}"
        if self.timed_out or self.cancelled:
            return f"{'timed out' if self.timed_out else 'cancelled'} after {self.duration_seconds:.1f} s"
        how = f"exit code {self.exit_code}" if self.signal is None else f"ended by {_name(self.signal)}"
        return f"{how}: {self.limit}" if self.limit else how


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def finished(refusal: tuple[int, str] | None, report: dict[str, Any], stdout: Capture, stderr: Capture) -> Finished:
    """The end of a command, from the shim's report and the captured output."""
    began = datetime.fromtimestamp(report["started_at"], UTC)
    if not refusal and not report["begun"]:
        refusal = _refused_inside(stderr.text())
    ended_by, code = (None, refusal[0]) if refusal else _ending(report["status"], report["in_sandbox"])
    return Finished(
        exit_code=code,
        signal=ended_by,
        started=refusal is None,
        started_at=began,
        ended_at=began + timedelta(seconds=report["duration_seconds"]),
        max_rss_bytes=None if refusal else report["max_rss_bytes"],
        stdout=stdout.text(),
        stderr=readable(refusal[1].encode("utf-8", "replace")) if refusal else stderr.text(),
        stdout_truncated_bytes=stdout.left_out_bytes,
        stderr_truncated_bytes=stderr.left_out_bytes,
        **{name: report[name] for name in REPORTED},
    )


def _refused_inside(message: str) -> tuple[int, str]:
    """Exit code and reason from bubblewrap's message when it could not start the command, as without a sandbox."""
    plain = message.strip().removeprefix("bwrap: ")
    if plain.startswith(NO_DIRECTORY):
        return CANNOT_RUN, f"working directory {plain.removeprefix(NO_DIRECTORY)}"
    if not plain.startswith("execvp "):
        return CANNOT_RUN, f"its sandbox could not be made: {plain}"
    missing = plain.endswith((os.strerror(errno.ENOENT), os.strerror(errno.ENOTDIR)))
    return NOT_FOUND if missing else CANNOT_RUN, plain.removeprefix("execvp ") + (ELSEWHERE if missing else "")


def _ending(status: int | None, in_sandbox: bool) -> tuple[int | None, int]:
    """The signal, if one ended the command, and the exit code. Without a status, SIGKILL could not end it.

    A sandbox reports a signal as shells do, as an exit code that the command could also have returned itself.
    """
    code = -signal.SIGKILL if status is None else os.waitstatus_to_exitcode(status)
    if in_sandbox and SIGNALLED < code < SIGNALLED + signal.NSIG:
        return code - SIGNALLED, code
    return (-code, SIGNALLED - code) if code < 0 else (None, code)
