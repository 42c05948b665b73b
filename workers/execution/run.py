"""Run one command to its end."""

import time
from collections.abc import Callable

from workers.execution.command import Command
from workers.execution.finished import Finished
from workers.execution.running import running


def run(
    command: Command,
    *,
    on_tick: Callable[[], object] | None = None,
    cancelled: Callable[[], bool] | None = None,
    tick_seconds: float = 1.0,
) -> Finished:
    """Run `command` and wait for the end of everything it started.

    Whatever becomes of it is a value: not found, refused, failed, timed out, killed. If this call is left by an
    exception (out of `on_tick`, or Celery's time limit) or its process dies, the tree is killed at once.

    Args:
        command: what to run.
        on_tick: called in this thread about every `tick_seconds`: heartbeats, renewing a lease. While it takes its
            time, output waits; the command's own time limit does not depend on it.
        cancelled: asked as often; once it says yes, the tree gets SIGTERM, and SIGKILL after the grace.
        tick_seconds: the time between ticks.

    Raises:
        BadInput: a word or variable of the command cannot be encoded.
        WardenLost: the process watching the command was killed; the command is killed, its outcome unknown.
        OSError: this machine has no process or file descriptor left.
    """
    with running(command) as begun:
        next_tick = time.monotonic() + tick_seconds
        while not begun.ended:
            begun.tend(next_tick - time.monotonic())
            if not begun.ended:
                next_tick = time.monotonic() + tick_seconds
                _tick(begun.cancel, on_tick, cancelled)
        return begun.finished()


def _tick(
    cancel: Callable[[], None], on_tick: Callable[[], object] | None, cancelled: Callable[[], bool] | None
) -> None:
    if on_tick:
        on_tick()
    if cancelled and cancelled():
        cancel()
