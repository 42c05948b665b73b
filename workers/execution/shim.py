"""The warden: a process that runs one command and outlives all of the command's tree.

A program, started for each command. The asking process could not do it: it may have threads (no safe fork), children
of its own (it must not adopt and reap others), and may be killed. When that happens the tree is killed at once, without
SIGTERM: what it did may be running elsewhere soon.
"""

import os
import resource
import signal
import sys
import time
from io import BytesIO

from workers.execution import tree
from workers.execution.ears import Ears, Heard
from workers.execution.launch import launch
from workers.execution.order import Order, packed, unpacked

LINGER_SECONDS = 0.5  # for what the command did not wait for, as `tee` behind a shell
KILL_AGAIN_SECONDS = 0.02  # for what was born while we killed
UNKILLABLE_SECONDS = 10.0
NEVER = float("inf")
RUNNING, LINGERING, TERMINATING, KILLING = range(4)


class Warden:
    """One command under watch, from its start to the end of its tree. Deadlines are monotonic seconds."""

    def __init__(self, order: Order, ears: Ears) -> None:
        self._order = order
        self._ears = ears
        self._stage = RUNNING
        self._deadline = self._give_up_at = NEVER
        self._status: int | None = None
        self._timed_out = self._cancelled = False
        self._left_behind = self._survivors = 0

    def start(self) -> dict[str, object]:
        """Start the command. Returns the first report: its pid, and why it was refused if it was."""
        self._started_at, self._began = time.time(), time.monotonic()
        self._due_in(self._order.timeout_seconds)
        self._pid, refusal = launch(self._order)
        return {"pid": self._pid, "refusal": refusal}

    def watch(self) -> dict[str, object]:
        """Wait for the end of the tree, and bring it about when time is up. Returns the last report."""
        while self._lives() and not self._survivors:
            if self._stage == RUNNING and self._status is not None:
                self._stage = LINGERING
                self._due_in(LINGER_SECONDS)
            self._heed(self._ears.hear(self._seconds_left()))
        return self._report()

    def _lives(self) -> bool:
        """Reap what ended; whether anything is left of the tree."""
        try:
            while reaped := os.waitpid(-1, os.WNOHANG):
                if reaped[0] == 0:
                    return True
                if reaped[0] == self._pid:
                    self._status = reaped[1]
        except ChildProcessError:
            pass
        return tree.outlives(self._pid)

    def _heed(self, heard: Heard) -> None:
        if heard is Heard.ALONE:
            self._kill()
        elif heard is Heard.CANCEL and self._stage == RUNNING:
            self._cancelled = True
            self._terminate()
        elif self._seconds_left() == 0:
            self._escalate()

    def _escalate(self) -> None:
        if self._stage == RUNNING:
            self._timed_out = True
            self._terminate()
        elif self._stage == LINGERING:
            self._left_behind = self._terminate()
        else:
            self._kill()

    def _terminate(self) -> int:
        self._stage = TERMINATING
        self._due_in(self._order.grace_seconds)
        return tree.signal_all(self._pid, signal.SIGTERM, signal.SIGCONT)  # what is stopped hears nothing else

    def _kill(self) -> None:
        now = time.monotonic()
        if self._stage != KILLING:
            self._stage, self._give_up_at = KILLING, now + UNKILLABLE_SECONDS
        self._due_in(KILL_AGAIN_SECONDS)
        left = tree.signal_all(self._pid, signal.SIGKILL)
        self._survivors = left if now > self._give_up_at else 0

    def _due_in(self, seconds: float | None) -> None:
        self._deadline = NEVER if seconds is None else time.monotonic() + seconds

    def _seconds_left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def _report(self) -> dict[str, object]:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return {
            "status": self._status,
            "timed_out": self._timed_out,
            "cancelled": self._cancelled,
            "left_behind": self._left_behind,
            "survivors": self._survivors,
            "started_at": self._started_at,
            "seconds": time.monotonic() - self._began,
            "cpu_seconds": used.ru_utime + used.ru_stime,
            "max_rss_bytes": used.ru_maxrss * (1024 if tree.LINUX else 1),  # getrusage(2): kilobytes; macOS: bytes
        }


def main(control: int) -> None:
    """Be the warden of the command whose order comes on stdin; `control` is our end of the socket."""
    os.set_inheritable(control, False)
    order = Order(**unpacked(BytesIO(sys.stdin.buffer.read())))
    ears = Ears(control, order.asking)
    tree.adopt_orphans()
    warden = Warden(order, ears)
    started = warden.start()
    _tell(control, started)
    _tell(control, warden.watch())
    os._exit(0)  # an interpreter's long goodbye would only keep the caller waiting


def _tell(control: int, report: dict[str, object]) -> None:
    try:
        os.write(control, packed(report))
    except (BrokenPipeError, ConnectionResetError):  # nobody listens any more; `Ears` hears that too
        return
