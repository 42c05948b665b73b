"""Fork servers without an `interlock up`: to be tested, or because importing takes each command a second."""

import json
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from interlock.cli.fork_server.confinement import is_alike
from interlock.cli.fork_server.launcher import SOCKET, address
from interlock.supervisor.environment import environment
from interlock.supervisor.home import Home, home_of
from interlock.workers.settings import Settings
from tests.waiting import eventually

INTERLOCK = Path(sys.executable).with_name("interlock")
PROBE = Path(__file__).parent / "integration"  # where fork_probe is


def refusal() -> str:
    """Why no process here can have a fork; empty: it can."""
    one, other = socket.socketpair()
    with one, other:
        try:
            return "" if is_alike(one) else "everything here has no_new_privs"
        except OSError as refused:
            return f"SO_PEERPIDFD (Linux 6.5): {refused}"


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


@dataclass
class Served:
    """A home with a fork server, without other parts."""

    home: Home
    process: "subprocess.Popen[bytes]"
    env: dict[str, str]
    folder: Path

    def run(self, *command: object, **options: Any) -> "subprocess.CompletedProcess[str]":
        chosen = {"cwd": self.folder, "stdin": subprocess.DEVNULL, "env": self.env, **options}
        return subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, timeout=60, **chosen)

    def probe(self, *command: object, **options: Any) -> dict[str, Any]:
        """What the process that ran a command was."""
        report = self.folder / "report.json"
        report.unlink(missing_ok=True)
        env = {**self.env, **options.pop("more", {}), "INTERLOCK_DEFINITIONS": "fork_probe", "PROBE": str(report)}
        done = self.run(*command, "definitions", "list", "--json", env=env, **options)
        assert done.returncode == 0, done.stderr
        assert {each["type"] for each in json.loads(done.stdout)} > {"story", "run"}
        found: dict[str, Any] = json.loads(report.read_text())
        return found

    def fork(self, **options: Any) -> dict[str, Any]:
        """What the fork was that ran a command. On a busy machine the launcher may take the server for stuck once."""
        found: dict[str, Any] = eventually(
            lambda: (got := self.probe(INTERLOCK, **options)) and self.is_fork(got) and got
        )
        return found

    def runs_itself(self, *python: object, more: Mapping[str, str] | None = None, **options: Any) -> bool:
        """Whether a launcher, started with these arguments of Python, has to run `interlock --version` itself.

        Only then does it import the commands. That takes a fifth of the time of a probe.
        """
        command = (sys.executable, "-X", "importtime", *python, "--version")
        done = self.run(*command, env={**self.env, **(more or {})}, **options)
        assert (done.returncode, done.stdout[:10]) == (0, "interlock "), done.stderr
        return "interlock.cli.main\n" in done.stderr

    def is_fork(self, found: dict[str, Any]) -> bool:
        return bool(found["parent"] == self.process.pid)

    @contextmanager
    def waiting(self, before: tuple[str, ...] = (), **options: Any) -> Iterator["subprocess.Popen[str]"]:
        """A command that reads its standard input, which stays open, in a fork."""
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        command = [*before, INTERLOCK, "run", "check", "-"]
        with subprocess.Popen(command, cwd=self.folder, env=self.env, text=True, **streams, **options) as process:
            eventually(lambda: self.forks() and is_reading(self.forks()[0].pid))
            try:
                yield process
            finally:
                process.kill()

    def knock(self) -> None:
        """Wait until it has imported what commands need."""
        with socket.socket(socket.AF_UNIX) as connection:
            reach(connection, self.home.path / "run")
            connection.recv(1)

    def forks(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children()


def is_reading(pid: int) -> bool:
    """Whether a process waits for its standard input. Before, pydantic may lose a signal: compiled code ignores it."""
    return Path(f"/proc/{pid}/syscall").read_text().startswith("0 0x0 ")


def reach(connection: socket.socket, run: Path) -> None:
    with address(run) as socket_path:
        connection.connect(socket_path)


@contextmanager
def serving(folder: Path, more: dict[str, str] | None = None, idle: str = "300", **options: Any) -> Iterator[Served]:
    home = home_of(Settings(home=folder / "home"))
    home.create()
    plain = {name: value for name, value in environment(Settings(home=home.path)).items() if "PYTHON" not in name}
    env = {**plain, "PYTHONSAFEPATH": "1", "PYTHONPATH": str(PROBE)}
    with (
        (folder / "log").open("wb") as log,
        listener_of(home, {**env, **(more or {})}, idle, stdout=log, **options) as process,
    ):
        made = Served(home, process, env, folder)
        made.knock()
        yield made
