"""The shim: a process that runs one command and outlives all of the command's process tree.

It is a program of its own, started for each command. The process that asks for a command cannot do this itself: it may
have threads (so it cannot fork safely), it has other children (which it must not adopt and reap), and it may be killed.
If it is killed, the tree is killed at once, without SIGTERM, because the same work may soon run elsewhere.
"""

import os
import resource
import sys
import time
from io import BytesIO

from interlock.workers.execution.launch import launch, was_started
from interlock.workers.execution.plain_signal import signal
from interlock.workers.execution.shim_events import ALONE, CANCELLED, EventSource
from interlock.workers.execution.shim_protocol import ShimOrder, packed, unpacked
from interlock.workers.execution.usage import LOOK_SECONDS, UsageWatch
from interlock.workers.system import process_tree

LINGER_SECONDS = 0.5  # for processes that the command did not wait for, such as `tee` behind a shell
KILL_AGAIN_SECONDS = 0.02  # for processes born while others were killed
UNKILLABLE_SECONDS = 10.0
NEVER = float("inf")
RUNNING, LINGERING, TERMINATING, KILLING = range(4)


class Shim:
    """Watches one command from its start to the end of its process tree. Deadlines are monotonic seconds."""

    def __init__(self, order: ShimOrder, events: EventSource) -> None:
        self._order = order
        self._events = events
        self._stage = RUNNING
        self._deadline = self._give_up_at = NEVER
        self._status: int | None = None
        self._timed_out = self._cancelled = False
        self._left_behind = self._survivors = 0
        self._excess: str | None = None

    def start(self) -> dict[str, object]:
        """Start the command. Returns the first report: its pid, and the reason if it was refused."""
        self._started_at, self._began = time.time(), time.monotonic()
        self._due_in(self._order.timeout_seconds)
        self._watch = UsageWatch(self._order)
        self._look_at = self._began + LOOK_SECONDS
        self._pid, refusal, self._sandbox_status = launch(self._order)
        return {"pid": self._pid, "refusal": refusal}

    def watch(self) -> dict[str, object]:
        """Wait for the end of the tree, and end it when its time limit is reached. Returns the last report."""
        while self._lives() and not self._survivors:
            if self._stage == RUNNING and self._status is not None:
                self._stage = LINGERING
                self._due_in(LINGER_SECONDS)
            self._handle(self._events.next_event(min(self._seconds_left(), self._seconds_to_look())))
            self._look()
        return self._report()

    def _lives(self) -> bool:
        """Reap ended processes; whether any process of the tree is left."""
        try:
            while reaped := os.waitpid(-1, os.WNOHANG):
                if reaped[0] == 0:
                    return True
                if reaped[0] == self._pid:
                    self._status = reaped[1]
        except ChildProcessError:
            pass
        return process_tree.outlives(self._pid)

    def _handle(self, event: int) -> None:
        if event == ALONE:
            self._kill()
        elif event == CANCELLED and self._stage == RUNNING:
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
        signals = (signal.SIGTERM, signal.SIGCONT)  # a stopped process handles no other signal before SIGCONT
        return process_tree.signal_all(self._pid, *signals, spare_leader=self._sandbox_status is not None)

    def _kill(self) -> None:
        now = time.monotonic()
        if self._stage != KILLING:
            self._stage, self._give_up_at = KILLING, now + UNKILLABLE_SECONDS
        self._due_in(KILL_AGAIN_SECONDS)
        left = process_tree.signal_all(self._pid, signal.SIGKILL)
        self._survivors = left if now > self._give_up_at else 0

    def _look(self) -> None:
        """Kill a command that exceeds its limits, at once: it would use more during a grace period."""
        if self._stage == KILLING or self._seconds_to_look() > 0:
            return
        self._look_at = time.monotonic() + LOOK_SECONDS
        if excess := self._watch.excess():
            self._excess = excess
            self._kill()

    def _seconds_to_look(self) -> float:
        return NEVER if self._stage == KILLING else max(0.0, self._look_at - time.monotonic())

    def _due_in(self, seconds: float | None) -> None:
        self._deadline = NEVER if seconds is None else time.monotonic() + seconds

    def _seconds_left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def _report(self) -> dict[str, object]:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return {
            "status": self._status,
            "begun": self._was_started(),
            "in_sandbox": self._sandbox_status is not None,
            "limit": self._excess or self._limit(used.ru_utime + used.ru_stime),
            "timed_out": self._timed_out,
            "cancelled": self._cancelled,
            "left_behind": self._left_behind,
            "survivors": self._survivors,
            "started_at": self._started_at,
            "duration_seconds": time.monotonic() - self._began,
            "cpu_seconds": used.ru_utime + used.ru_stime,
            "max_rss_bytes": used.ru_maxrss
            * (1024 if process_tree.LINUX else 1),  # getrusage(2): kilobytes; macOS: bytes
        }

    def _limit(self, cpu_seconds: float) -> str | None:
        """Which of the kernel's limits it reached, as far as its end shows that."""
        if not self._status:
            return None
        order, code = self._order, os.waitstatus_to_exitcode(self._status)
        ended_by = -code if code < 0 else code - 128
        if ended_by == signal.SIGXFSZ:
            return f"a file reached its limit of {order.file_bytes} bytes"
        # The kernel counts this limit in whole ticks, which on a busy machine run ahead of the time it reports.
        computed = order.cpu_seconds is not None and cpu_seconds >= order.cpu_seconds / 2
        ours = self._timed_out or self._cancelled
        if ended_by == signal.SIGXCPU or (ended_by == signal.SIGKILL and computed and not ours):
            return f"it used its {order.cpu_seconds} s of processor time"
        return f"it had all its {order.processes} processes" if self._watch.reached_processes else None

    def _was_started(self) -> bool:
        """Whether the command ran: in a sandbox, that it cannot may turn out only after bubblewrap has started."""
        if self._sandbox_status is None or self._status is None or not os.WIFEXITED(self._status):
            return True
        return was_started(self._sandbox_status)


def main(descriptors: list[str]) -> None:
    """Run the shim of the command whose order comes on stdin. The first descriptor is our end of the control socket;
    the others are only kept open."""
    process_tree.set_dumpable(False)
    control, *_ = kept = list(map(int, descriptors))
    for each in kept:
        os.set_inheritable(each, False)
    order = ShimOrder(**unpacked(BytesIO(sys.stdin.buffer.read())))
    events = EventSource(control, order.asking)
    process_tree.control(process_tree.PR_SET_CHILD_SUBREAPER, 1)  # adopts every descendant whose own parent ends
    shim = Shim(order, events)
    started = shim.start()
    _send(control, started)
    _send(control, shim.watch())
    os._exit(0)  # the interpreter's own shutdown would only keep the caller waiting


def _send(control: int, report: dict[str, object]) -> None:
    try:
        os.write(control, packed(report))
    except (BrokenPipeError, ConnectionResetError):  # nobody reads any more; `EventSource` notices that, too
        return
