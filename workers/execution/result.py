"""How a command ended, as a value: also one that never started, was killed, or ran out of time."""

import os
import signal
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from workers.execution.capture import Capture, readable

SIGNALLED = 128  # what POSIX shells add to the signal's number (sh, 2.8.2)


@dataclass(frozen=True)
class Finished:
    """The end of one command.

    Attributes:
        exit_code: its own, or 128 + N when signal N ended it, 127 if there is no such program, 126 if it cannot run.
        signal: the number of the signal that ended it, if one did.
        started: False if it never ran; `stderr` says why.
        timed_out: its time was up and it was ended; whatever its exit code, it failed.
        cancelled: it was ended because we were asked to; likewise.
        started_at: instant of its start, UTC.
        ended_at: when the last of its processes had ended, UTC.
        duration_seconds: from the one to the other.
        cpu_seconds: what its processes computed, as far as they were waited for.
        max_rss_bytes: the most memory that one of its processes held (the fork of the warden counts: 8 MB).
        stdout: what it wrote there, as text that PostgreSQL takes.
        stderr: likewise.
        stdout_truncated_bytes: how much of it was left out of `stdout`.
        stderr_truncated_bytes: likewise.
        left_behind: how many of its process groups still ran a moment after it had ended, and were ended.
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

    def succeeded(self, expected: Collection[int] = (0,)) -> bool:
        """Whether it ran to its own end, with one of the `expected` exit codes (SSOT 1.4.4)."""
        return self.started and not self.timed_out and not self.cancelled and self.exit_code in expected

    @property
    def reason(self) -> str:
        """How it ended, in a line for an operator."""
        if not self.started:
            return self.stderr
        if self.timed_out or self.cancelled:
            return f"{'timed out' if self.timed_out else 'cancelled'} after {self.duration_seconds:.1f} s"
        if self.signal is not None:
            return f"ended by {_name(self.signal)}"
        return f"exit code {self.exit_code}"


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def finished(refusal: tuple[int, str] | None, report: dict[str, Any], stdout: Capture, stderr: Capture) -> Finished:
    """The end that the warden's reports tell, with what the command wrote."""
    began = datetime.fromtimestamp(report["started_at"], UTC)
    ended_by, code = (None, refusal[0]) if refusal else _ending(report["status"])
    return Finished(
        exit_code=code,
        signal=ended_by,
        started=refusal is None,
        timed_out=report["timed_out"],
        cancelled=report["cancelled"],
        started_at=began,
        ended_at=began + timedelta(seconds=report["seconds"]),
        duration_seconds=report["seconds"],
        cpu_seconds=report["cpu_seconds"],
        max_rss_bytes=None if refusal else report["max_rss_bytes"],
        stdout=stdout.text(),
        stderr=readable(refusal[1].encode("utf-8", "replace")) if refusal else stderr.text(),
        stdout_truncated_bytes=stdout.left_out_bytes,
        stderr_truncated_bytes=stderr.left_out_bytes,
        left_behind=report["left_behind"],
        survivors=report["survivors"],
    )


def _ending(status: int | None) -> tuple[int | None, int]:
    """The signal, if one ended it, and the exit code; without a status it would not die of the last signal there is."""
    code = -signal.SIGKILL if status is None else os.waitstatus_to_exitcode(status)
    return (-code, SIGNALLED - code) if code < 0 else (None, code)
