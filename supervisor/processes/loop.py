"""The process of `interlock up`: starts every part, keeps them running, and stops them in order."""

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from interlock.supervisor import orphans
from interlock.supervisor.environment import DIRECTORY
from interlock.supervisor.home import Home, home_of, write_atomically
from interlock.supervisor.processes import lock, reaper, specs
from interlock.supervisor.processes.fork import fork, is_module, module, preload
from interlock.supervisor.processes.process import Child, PartReport, ending, open_log, tail
from interlock.supervisor.processes.spec import Part
from interlock.supervisor.servers import data_dirs, endpoints, postgres, valkey
from interlock.workers.settings import Settings
from interlock.workers.system import process_privacy
from interlock.workers.system.users import Account, commands_account, server_account
from interlock.workflows.errors import ServerFault

PULSE_SECONDS = 0.05
REST_SECONDS = 0.5  # between two checks while every part is ready; a signal or the end of a part interrupts it
START_SECONDS = 45.0  # shorter than the limit of a detached start, so that the error names the part
START_ATTEMPTS = 3  # failures in a row before a part that is not ready is given up

Watch = Callable[[list[PartReport]], None]


class _Stopping(BaseException):
    """Raised when asked to stop, to unwind from anywhere in the supervisor."""


def supervise(
    settings: Settings,
    *,
    without: frozenset[str] = frozenset(),
    prepare: Sequence[str] = (),
    watch: Watch = lambda _parts: None,
    ready: Callable[[], None] = lambda: None,
    tether: int | None = None,
) -> None:
    """Run until SIGTERM or SIGINT (or the end of the `tether` pipe), then stop everything and return.

    `without` names parts to leave out. `prepare` is a command (migrations) that runs once, after the servers and before
    the workers. `watch` is called at every change, `ready` once, when all parts are ready. Only for the main thread.

    Raises `AlreadyRunning`, `PortTaken`, `DataUnusable`, or `ServerFault` with the last lines of a part's log if the
    part does not become ready; everything that was started is then stopped.
    """
    process_privacy.hide(settings)
    home = home_of(settings)
    home.create()
    with lock.held(home) as held, _signals() as (stop_requested, woken):
        orphans.end_all(home, data_places(home))
        home.empty_scratch()
        waits = [woken] if tether is None else [woken, tether]
        supervision = Supervision(
            home,
            stop_requested=lambda: stop_requested() or _cut(tether) or not lock.is_still_held(home, held),
            pause=lambda seconds: _pause(waits, seconds),
            watch=watch,
        )
        account = server_account(settings)
        data_dirs.require_safe(home, account, commands_account(settings))
        if settings.database_url is None and not endpoints.load(home).postgres_passwords:
            postgres.refuse_without_password(home)
        addresses = endpoints.settle(
            home, settings, lambda name, known: data_dirs.data_directory(home, name, known, account), without
        )
        with reaper.watching(home, data_places(home)):
            _create_data(home, settings, addresses, account)
        rows = specs.parts(home, settings, addresses, account, without)
        meanwhile = partial(preload, specs.part_environment(home, settings, addresses))
        environment = specs.prepare_environment(home, settings, addresses)
        supervision.run(rows, tuple(prepare), environment, ready, meanwhile)


def _create_data(home: Home, settings: Settings, addresses: endpoints.Servers, account: Account | None) -> None:
    if settings.database_url is None:
        data = Path(addresses.postgres_data or "")
        if not postgres.check(data):
            postgres.create(home, data, addresses, account)
    if settings.broker_url is None:
        valkey.create(Path(addresses.redis_data or ""), account)


def data_places(home: Home) -> list[Path]:
    """Every directory that an embedded server of this home may use."""
    known = endpoints.load(home)
    recorded = [Path(place) for place in (known.postgres_data, known.redis_data) if place]
    return [*recorded, home.path / "postgres", home.path / "valkey"]


class Supervision:
    """The loop over the parts; writes their state to `processes.json`."""

    def __init__(
        self, home: Home, stop_requested: Callable[[], bool], pause: Callable[[float], None], watch: Watch
    ) -> None:
        self.home = home
        self.stop_requested = stop_requested
        self.pause = pause
        self.watch = watch
        self.children: list[Child] = []

    def run(
        self,
        rows: list[Part],
        prepare: tuple[str, ...],
        environment: dict[str, str],
        ready: Callable[[], None],
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        """Start the parts, tend them until asked to stop, stop them. Raises `ServerFault` if a part does not start.

        `meanwhile` is called while the servers start, if there are other parts.
        """
        first = [part for part in rows if part.name in specs.SERVER_PARTS]
        then = [part for part in rows if part.name not in specs.SERVER_PARTS]
        try:
            self._start(first)  # they end with this process by themselves
            if then:
                meanwhile()
            with reaper.watching(self.home, data_places(self.home)):
                try:
                    self._until_ready(first)
                    if prepare:
                        self._prepare(prepare, environment)
                    self._start(then)
                    self._until_ready(then)
                    ready()
                    self._tend_until(lambda: False)
                finally:
                    self._stop_all()
        except _Stopping:
            pass
        finally:
            self._stop_all()  # if an error came before the inner `finally`

    def _start(self, parts: list[Part]) -> None:
        fresh = [Child(part, self.home.log(part.name), self._changed) for part in parts]
        self.children += fresh
        for child in fresh:
            child.start()

    def _until_ready(self, parts: list[Part]) -> None:
        fresh = [child for child in self.children if child.part in parts]
        deadline = time.monotonic() + START_SECONDS
        self._tend_until(lambda: _all_ready(fresh, deadline))

    def _prepare(self, command: tuple[str, ...], environment: dict[str, str]) -> None:
        log = self.home.log("prepare")
        with open_log(log) as output:
            task = (
                fork(f"{orphans.PREFIX}prepare", module(command), environment, output)
                if is_module(command)
                else subprocess.Popen(command, env=environment, cwd=DIRECTORY, stdout=output, stderr=output)
            )
        try:
            self._tend_until(lambda: task.poll() is not None)
        except BaseException:
            task.terminate()
            task.wait()
            raise
        if task.returncode:
            raise ServerFault(f"`{' '.join(command)}` {ending(task.returncode)}:\n{tail(log)}\nMore in {log}")

    def _tend_until(self, done: Callable[[], bool]) -> None:
        while not done():
            if self.stop_requested():
                raise _Stopping
            for child in self.children:
                child.tend()
            self.pause(REST_SECONDS if all(child.state == "ready" for child in self.children) else PULSE_SECONDS)

    def _stop_all(self) -> None:
        """Stop all nodes at the same time, then the servers one by one, PostgreSQL last."""
        nodes = [child for child in self.children if child.part.name not in specs.SERVER_PARTS]
        servers = [child for child in reversed(self.children) if child not in nodes]
        for group in (nodes, *([server] for server in servers)):
            for child in group:
                child.ask_to_stop()
            waiting = group
            while waiting := [child for child in waiting if not child.finish_stop()]:
                time.sleep(PULSE_SECONDS)

    def _changed(self) -> None:
        reports = [child.report() for child in self.children]
        document = {
            "home": str(self.home.path),
            "supervisor": os.getpid(),
            "parts": [asdict(report) for report in reports],
        }
        with contextlib.suppress(FileNotFoundError):  # the home was deleted, so the supervisor is about to stop
            write_atomically(self.home.processes, json.dumps(document, indent=2) + "\n")
        self.watch(reports)


def _all_ready(children: list[Child], deadline: float) -> bool:
    for child in children:
        late = time.monotonic() > deadline and child.state != "ready"
        if late or child.failures >= START_ATTEMPTS:
            raise ServerFault(
                f"{child.part.name} did not become ready ({child.detail}):\n{tail(child.log)}\nMore in {child.log}"
            )
    return all(child.state == "ready" for child in children)


@contextlib.contextmanager
def _signals() -> Iterator[tuple[Callable[[], bool], int]]:
    """Yields a function that returns whether SIGTERM or SIGINT came, and a pipe to which any signal writes."""
    received: list[int] = []
    handlers = {signal.SIGTERM: lambda got, _: received.append(got), signal.SIGCHLD: lambda _got, _: None}
    handlers[signal.SIGINT] = handlers[signal.SIGTERM]
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    waker = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    try:
        yield lambda: bool(received), woken
    finally:
        signal.set_wakeup_fd(waker)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(woken)
        os.close(wake)


def _pause(waits: list[int], seconds: float) -> None:
    """Wait until the time is over, a signal comes or the tether ends; the first of `waits` is the signals' pipe."""
    if waits[0] in select.select(waits, [], [], seconds)[0]:
        os.read(waits[0], 4096)


def _cut(tether: int | None) -> bool:
    """Whether the other end of the pipe is closed."""
    return tether is not None and bool(select.select([tether], [], [], 0)[0])
