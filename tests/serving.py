"""Serve the API and the console, as `interlock api serve` does."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from interlock.supervisor.environment import environment
from interlock.workers.settings import Settings


@contextmanager
def serving(settings: Settings, log: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`interlock api serve` on a free port: the process and its URL."""
    command = [sys.executable, "-m", "interlock.cli.main", "api", "serve", "--port", "0"]
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command, env=environment(settings), stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        try:
            assert process.stdout
            yield process, process.stdout.readline().strip()
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)
