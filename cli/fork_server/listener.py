"""`python -m interlock.cli.fork_server.listener DIRECTORY [SECONDS]`: the part of `interlock up` that forks commands.

At rest it only listens, on a socket in the home's directory `run`, and takes a few megabytes. At the first command it
imports what commands need (`server.py`) and serves; after SECONDS without commands (300) it executes itself anew, and
hands itself the socket (by its descriptor's number, a third argument): who asks meanwhile is served a moment later.
"""

import contextlib
import os
import select
import socket
import sys
from pathlib import Path

from interlock.cli.fork_server.launcher import address
from interlock.supervisor.processes.importing import without_collections
from interlock.workers.system.readiness import announce_ready

NAME = "il-commands"  # as all parts are named
BACKLOG = 64


def main(directory: str, seconds: str = "300", descriptor: str = "") -> None:
    """Serve until a signal ends this process. The arguments are the command line's."""
    listening = socket.socket(fileno=int(descriptor)) if descriptor else listen(directory)
    listening.set_inheritable(False)  # as long as it serves; only its own exec below hands it on
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(NAME)
    announce_ready()
    select.select([listening], [], [])
    with without_collections():
        from interlock.cli.fork_server.server import serve  # noqa: PLC0415 - large, and an idle installation needs none

    serve(listening, float(seconds))
    listening.set_inheritable(True)
    python = sys.orig_argv[: -len(sys.argv[1:])]
    os.execv(sys.executable, [*python, directory, seconds, str(listening.fileno())])  # noqa: S606


def listen(directory: str | Path) -> socket.socket:
    """Listen on the socket of a fork server, for its own user only."""
    listening = socket.socket(socket.AF_UNIX)
    with address(directory) as socket_path:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(socket_path)
        listening.bind(socket_path)
    listening.listen(BACKLOG)
    return listening


if __name__ == "__main__":
    main(*sys.argv[1:])
