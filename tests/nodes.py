"""Celery nodes as real processes, killed at the end with all their child processes."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

from interlock.supervisor.environment import environment
from interlock.workers.settings import Settings
from interlock.workers.system import process_privacy
from tests.waiting import eventually

READY_SECONDS = 30.0


@dataclass(frozen=True)
class Node:
    """A running Celery process, the leader of its own process group."""

    process: "subprocess.Popen[bytes]"
    ready_file: Path
    log: Path

    @property
    def ready(self) -> bool:
        """Whether it consumes messages (for beat: sends them)."""
        if (code := self.process.poll()) is not None:
            raise ChildProcessError(f"ended with code {code}:\n{self.log.read_text()[-4000:]}")
        return self.ready_file.exists()

    def kill(self) -> None:
        """Send SIGKILL to it and all its children; does nothing if it is gone."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextlib.contextmanager
def node(
    settings: Settings,
    directory: Path,
    *arguments: str,
    program: tuple[str, ...] = ("-m", "celery"),
    app: str = "interlock.workers.main:app",
    **env: str,
) -> Iterator[Node]:
    """Run `celery -A interlock.workers.main:app ARGUMENTS` for the duration of a block; yields it once it is ready.

    `program` is run instead of celery, with the same arguments; `app` is another app.
    """
    name = f"{arguments[0]}-{token_hex(3)}"
    ready_file, log = directory / f"{name}.ready", directory / f"{name}.log"
    named = ("-n", f"{name}@tests") if arguments[0] == "worker" else ()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *process_privacy.marked(directory), *program, "-A", app, *arguments, *named],
            env={**environment(settings), "INTERLOCK_READY_FILE": str(ready_file), **env},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    started = Node(process, ready_file, log)
    try:
        eventually(lambda: started.ready, timeout=READY_SECONDS)
        yield started
    finally:
        started.kill()
