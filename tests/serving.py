"""Serve the API and the console: by `interlock api serve`, or as it does, in a thread, which costs 4 s less."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event

from interlock.api.server import Announced, Deferred, Make, bound, configuration
from interlock.console.site import create_site
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


@contextmanager
def served_here(settings: Settings, make: Make = create_site) -> Iterator[str]:
    """The same server in a thread of this process, for who does not need the process: its URL."""
    with in_a_thread(Deferred(make, settings), settings) as (_, url):
        yield url


@contextmanager
def in_a_thread(app: Deferred, settings: Settings) -> Iterator[tuple[Announced, str]]:
    """An application, served in a thread of this process: the server, and its URL."""
    listens = Event()
    with bound("127.0.0.1", 0) as listener, ThreadPoolExecutor(1) as thread:
        server = Announced(configuration(app, settings), app, listens.set)
        ended = thread.submit(server.run, [listener])
        ended.add_done_callback(lambda _: listens.set())
        listens.wait()
        try:
            yield server, f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            ended.result(30)
