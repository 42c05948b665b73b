"""A process that outlives a killed supervisor for a moment, to end the other processes.

When the supervisor dies, the kernel signals each part, but not a part's pool processes; and a worker that cannot reach
its broker may ignore SIGTERM for long. The reaper waits on a pipe that only the supervisor holds open.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from interlock.supervisor import orphans
from interlock.supervisor.home import Home
from interlock.supervisor.processes.fork import fork


@contextlib.contextmanager
def watching(home: Home, data: list[Path]) -> Iterator[None]:
    """Run a reaper for this process for the duration of a block. It does nothing if the block ends normally."""
    waits, held = os.pipe()
    with os.fdopen(os.dup(sys.stderr.fileno()), "wb") as output:
        reaper = fork(f"{orphans.PREFIX}reaper", partial(_reap, home, data), os.environ.copy(), output, stdin=waits)
    os.close(waits)
    try:
        yield
    finally:
        reaper.send_signal(signal.SIGKILL)
        reaper.wait()
        os.close(held)


def _reap(home: Home, data: list[Path]) -> None:
    """Wait for the end of standard input, then end the remaining processes."""
    os.read(0, 1)
    # Only those that run now: the next `interlock up` may start new ones while these are ending.
    orphans.end(orphans.of_home(home, data))
