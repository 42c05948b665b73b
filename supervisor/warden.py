"""Outlives a killed supervisor by a moment, to see that nothing else does.

The kernel signals each part when its supervisor dies, but not the pool processes below it, and a worker that cannot
reach its broker any more may ignore a polite signal for long. The warden waits on a pipe only the supervisor holds.
"""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from supervisor import strays
from supervisor.home import Home


@contextlib.contextmanager
def watching(home: Home, data: list[Path]) -> Iterator[None]:
    """Have a warden look after this process while the block runs. Left in order, it does nothing."""
    command = [sys.executable, "-m", "supervisor.warden", str(home.path), *map(str, data)]
    # In its own session, so that what kills our group does not kill it too.
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as warden:
        try:
            yield
        finally:
            warden.kill()


def main() -> None:
    """`python -m supervisor.warden HOME DATA...`: wait for the end of standard input, then end what is left."""
    home, *data = map(Path, sys.argv[1:])
    sys.stdin.read()
    # Those that run now: the next `interlock up` may start new ones while these are given time to end.
    strays.end(strays.of_home(Home(home), data))


if __name__ == "__main__":
    main()
