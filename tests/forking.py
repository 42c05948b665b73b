"""A fork server for commands that tests type into a shell where no `interlock up` runs: importing takes a second."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from interlock.cli.fork_server.launcher import SOCKET
from interlock.supervisor.environment import environment
from interlock.supervisor.home import home_of
from interlock.workers.settings import Settings
from tests.waiting import eventually


@dataclass(frozen=True)
class ForkServer:
    """A fork server with a home of its own."""

    socket: Path

    def lend(self, home: Path) -> None:
        """Let this home's commands be forks, too; a supervisor started there replaces the socket by its own."""
        (home / "run").mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            (home / "run" / SOCKET).symlink_to(self.socket)


@contextmanager
def fork_server() -> Iterator[ForkServer]:
    with tempfile.TemporaryDirectory(prefix="interlock-forks-") as directory:
        home = home_of(Settings(home=Path(directory) / "home"))
        home.create()
        ready = home.ready_file("commands")
        command = [sys.executable, "-P", "-m", "interlock.cli.fork_server.listener", ready.parent]
        env = {**environment(Settings(home=home.path)), "INTERLOCK_READY_FILE": str(ready)}
        with subprocess.Popen(command, env=env, umask=0o077, stdout=subprocess.DEVNULL) as process:
            try:
                eventually(ready.exists)
                yield ForkServer(home.path / "run" / SOCKET)
            finally:
                process.kill()
