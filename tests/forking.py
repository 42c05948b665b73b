"""A fork server for commands that tests type into a shell where no `interlock up` runs: importing takes a second."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interlock.cli.fork_server.launcher import SOCKET
from interlock.supervisor.environment import environment
from interlock.supervisor.home import Home, home_of
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
        with listener_of(home, environment(Settings(home=home.path)), stdout=subprocess.DEVNULL):
            yield ForkServer(home.path / "run" / SOCKET)


@contextmanager
def listener_of(home: Home, env: Mapping[str, str], *words: str, **options: Any) -> Iterator["subprocess.Popen[bytes]"]:
    """Run the fork server of a home, once it listens; `words` are further arguments."""
    ready = home.ready_file("commands")
    command = [sys.executable, "-P", "-m", "interlock.cli.fork_server.listener", ready.parent, *words]
    with subprocess.Popen(command, env={"INTERLOCK_READY_FILE": str(ready), **env}, umask=0o077, **options) as process:
        try:
            eventually(ready.exists)
            yield process
        finally:
            process.kill()
