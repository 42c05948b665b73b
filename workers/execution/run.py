"""Runs one command to its end."""

import time
from collections.abc import Callable

from interlock.workers.execution.command import Command
from interlock.workers.execution.process import running
from interlock.workers.execution.result import Finished


def run(
    command: Command,
    *,
    on_tick: Callable[[], object] | None = None,
    cancelled: Callable[[], bool] | None = None,
    tick_seconds: float = 1.0,
    keep: tuple[int, ...] = (),
) -> Finished:
    """Run `command` and wait for the end of everything it started.

    Every way the command can end is a value: not found, refused, failed, timed out, killed. If an exception leaves this
    call (from `on_tick`, or Celery's time limit), or its process dies, the process tree is killed at once.

    Args:
        command: what to run.
        on_tick: called in this thread about every `tick_seconds`, for heartbeats or renewing a lease. Output waits
            while it runs; the command's own time limit does not depend on it.
        cancelled: called as often; once it returns True, the tree gets SIGTERM, and SIGKILL after the grace period.
        tick_seconds: the time between ticks.
        keep: descriptors, of locks, that the shim holds open until the tree is gone, even if this process dies.

    Raises:
        BadInput: a word or variable of the command cannot be encoded.
        ShimLost: the shim was killed; the command is killed, its outcome unknown.
        OSError: this machine has no process or file descriptor left.
    """
    with running(command, keep) as process:
        next_tick = time.monotonic() + tick_seconds
        while not process.ended:
            process.tend(next_tick - time.monotonic())
            if not process.ended:
                next_tick = time.monotonic() + tick_seconds
                _tick(process.cancel, on_tick, cancelled)
        return process.finished()


def _tick(
    cancel: Callable[[], None], on_tick: Callable[[], object] | None, cancelled: Callable[[], bool] | None
) -> None:
    if on_tick:
        on_tick()
    if cancelled and cancelled():
        cancel()
