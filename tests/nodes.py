"""Celery nodes as real processes, killed at the end with all their child processes."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

import psutil

from interlock.supervisor.environment import environment
from interlock.workers.settings import Settings
from interlock.workers.system import process_privacy
from tests.cli.terminal import FORKS, become
from tests.waiting import eventually

READY_SECONDS = 30.0
LOG_CHARACTERS = 6000  # of a node's log, printed where its test fails
CELERY = ("-m", "celery")  # a program: Celery in an interpreter of its own, for what it reads when it is imported

Begun = tuple[psutil.Process, Callable[[], int | None]]


@dataclass(frozen=True)
class Node:
    """A running Celery process, the leader of its own process group. `code` gives its exit code; None: it runs."""

    process: psutil.Process
    code: Callable[[], int | None]
    ready_file: Path
    log: Path

    @property
    def ready(self) -> bool:
        """Whether it consumes messages (for beat: sends them)."""
        if self.ended:
            raise ChildProcessError("it ended")
        return self.ready_file.exists()

    @property
    def ended(self) -> bool:
        try:
            self.process.wait(0)
        except psutil.TimeoutExpired:
            return False
        return True

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
    program: tuple[str, ...] = (),
    app: str = "interlock.workers.main:app",
    **env: str,
) -> Iterator[Node]:
    """Run `celery -A interlock.workers.main:app ARGUMENTS` for the duration of a block; yields it once it is ready.

    It is a fork of a process that has imported Celery, which takes 1.5 s. `program` is run instead by an interpreter of
    its own, with the same arguments; `app` is another app.
    """
    name = f"{arguments[0]}-{token_hex(3)}"
    ready_file, log = directory / f"{name}.ready", directory / f"{name}.log"
    log.touch()
    named = ("-n", f"{name}@tests") if arguments[0] == "worker" else ()
    words = ("-A", app, *arguments, *named)
    variables = {**environment(settings), "INTERLOCK_READY_FILE": str(ready_file), **env}
    with _executed(program, words, variables, directory, log) if program else _forked(words, variables, log) as begun:
        started = Node(*begun, ready_file, log)
        try:
            eventually(lambda: started.ready, timeout=READY_SECONDS)
            yield started
        except BaseException:  # the test has failed: pytest shows what is printed, and the log itself is deleted
            print(f"the end of {log.name}:\n{log.read_text(errors='replace')[-LOG_CHARACTERS:]}")
            raise
        finally:
            started.kill()


@contextlib.contextmanager
def _forked(words: tuple[str, ...], env: Mapping[str, str], log: Path) -> Iterator[Begun]:
    process = FORKS.Process(target=_lead, args=(words, env, log))
    process.start()
    try:
        yield psutil.Process(process.pid), lambda: process.exitcode
    finally:
        process.kill()
        process.join()
        process.close()


def _lead(words: tuple[str, ...], env: Mapping[str, str], log: Path) -> None:
    os.setsid()
    become("celery.__main__", words, env, log, log)


@contextlib.contextmanager
def _executed(
    program: tuple[str, ...], words: tuple[str, ...], env: Mapping[str, str], directory: Path, log: Path
) -> Iterator[Begun]:
    with log.open("wb") as output:
        process = psutil.Popen(
            [sys.executable, *process_privacy.marked(directory), *program, *words],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        yield process, process.poll
