"""A process that outlives a killed supervisor for a moment, to end the other processes.

When the supervisor dies, the kernel signals each part, but not a part's pool processes; and a worker that cannot reach
its broker may ignore SIGTERM for long. The reaper waits on a pipe that only the supervisor holds open. It waits as a
bare Python of 3 MB: as a fork, it alone would keep every page that the supervisor has written to since (10 MB).
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from interlock.db.schema import VARIABLE
from interlock.supervisor import orphans
from interlock.supervisor.environment import DIRECTORY, PYTHON
from interlock.supervisor.home import Home, home_of
from interlock.workers.execution.process import BARE, PACKAGES
from interlock.workers.settings import settings
from interlock.workers.system import process_privacy

KEPT = (  # of the supervisor's environment: the rest holds passwords
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "PYTHONSAFEPATH",
    VARIABLE,
    "INTERLOCK_RUN_AS",
    "INTERLOCK_COMMANDS_RUN_AS",
)
# Waits for the end of standard input, then executes its other arguments.
_WAIT = f"""
import os, sys
sys.path.append(sys.argv[1])
from interlock.workers.system import process_tree
process_tree.name_process("{orphans.PREFIX}reaper")
process_tree.set_dumpable(False)
os.read(0, 1)
os.execv(sys.argv[2], sys.argv[2:])
"""


@contextlib.contextmanager
def watching(home: Home, data: list[Path]) -> Iterator[None]:
    """Run a reaper for this process for the duration of a block. It does nothing if the block ends normally."""
    mark = process_privacy.marked(home.path, process_privacy.SUPERVISOR)
    then = (*PYTHON, *mark, "-m", "interlock.supervisor.processes.reaper", *map(str, data))
    waits, held = os.pipe()
    reaper = subprocess.Popen(
        (sys.executable, *BARE, *mark, "-c", _WAIT, PACKAGES, *then),
        stdin=waits,
        stdout=sys.stderr,
        env={name: os.environ[name] for name in KEPT if name in os.environ} | {"INTERLOCK_HOME": str(home.path)},
        cwd=DIRECTORY,
        start_new_session=True,  # so that Ctrl-C reaches only the supervisor
    )
    os.close(waits)
    try:
        yield
    finally:
        reaper.kill()
        reaper.wait()
        os.close(held)


def main() -> None:
    """End the processes of the home that run now: the next `interlock up` may start new ones while these are ending."""
    orphans.end(orphans.of_home(home_of(settings()), map(Path, sys.argv[1:])))


if __name__ == "__main__":
    main()
