"""Celery nodes as an operator runs them: real processes, killed with everything they started."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

from supervisor.environment import environment
from tests.waiting import eventually
from workers.settings import Settings

READY_SECONDS = 30.0


@dataclass(frozen=True)
class Node:
    """A running Celery process: its pid leads a process group of its own."""

    process: "subprocess.Popen[bytes]"
    ready_file: Path
    log: Path

    @property
    def ready(self) -> bool:
        """Whether it consumes (or sends, for beat)."""
        if (code := self.process.poll()) is not None:
            raise ChildProcessError(f"ended with code {code}:\n{self.log.read_text()[-4000:]}")
        return self.ready_file.exists()

    def kill(self) -> None:
        """SIGKILL, to it and all its children; harmless when it is gone."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextlib.contextmanager
def node(
    settings: Settings,
    directory: Path,
    *arguments: str,
    program: tuple[str, ...] = ("-m", "celery"),
    app: str = "workers.main:app",
    **env: str,
) -> Iterator[Node]:
    """Run `celery -A workers.main:app ARGUMENTS` while the block runs; yields it once it is ready.

    `program` is what Python is told to run instead of celery, with the same arguments; `app`, another app.
    """
    name = f"{arguments[0]}-{token_hex(3)}"
    ready_file, log = directory / f"{name}.ready", directory / f"{name}.log"
    named = ("-n", f"{name}@tests") if arguments[0] == "worker" else ()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *program, "-A", app, *arguments, *named],
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
