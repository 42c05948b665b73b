"""The process behind `interlock up`: starts every part, keeps them running, stops them in reverse order."""

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from supervisor import lock, places, postgres, servers, strays, table, valkey, warden
from supervisor.accounts import Account, server_account
from supervisor.child import Child, Report, ending, open_log, tail
from supervisor.home import Home, home_of, write_atomically
from supervisor.parts import Part
from workers.settings import Settings
from workflows.errors import ServerFault

PULSE_SECONDS = 0.05
START_SECONDS = 45.0  # less than a detached start is given, so that the error names the part
START_ATTEMPTS = 3  # ends in a row before a part that never got ready is given up

Watch = Callable[[list[Report]], None]


class _Stopping(BaseException):
    """Told to stop: unwinds from wherever the supervisor waits."""


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

    `without` names parts to leave out; `prepare` is a command run once between the servers and the workers
    (migrations); `watch` sees every change; `ready` is called once, when all parts are. For the main thread.

    Raises `AlreadyRunning`, `PortTaken`, `DataUnusable`, and `ServerFault` with the last lines of its log when
    a part does not come up; everything started is stopped then.
    """
    home = home_of(settings)
    home.create()
    with lock.held(home) as held, _told_to_stop() as told:
        strays.end_all(home, data_places(home))
        home.empty_scratch()
        supervision = Supervision(home, lambda: told() or _cut(tether) or not lock.still_ours(home, held), watch)
        account = server_account(settings.run_as)
        if settings.database_url is None and not servers.load(home).postgres_password:
            postgres.refuse_without_password(home)
        addresses = servers.settle(
            home, settings, lambda name, known: places.data_directory(home, name, known, account), without
        )
        with warden.watching(home, data_places(home)):
            _create_data(home, settings, addresses, account)
            rows = table.parts(home, settings, addresses, account, without)
            environment = table.part_environment(home, settings, addresses)
            supervision.run(rows, list(prepare), environment, ready)


def _create_data(home: Home, settings: Settings, addresses: servers.Servers, account: Account | None) -> None:
    if settings.database_url is None:
        data = Path(addresses.postgres_data or "")
        if not postgres.check(data):
            postgres.create(home, data, addresses.postgres_password, account)
    if settings.broker_url is None:
        valkey.create(Path(addresses.redis_data or ""), account)


def data_places(home: Home) -> list[Path]:
    """Every directory an embedded server of this home may work in."""
    known = servers.load(home)
    recorded = [Path(place) for place in (known.postgres_data, known.redis_data) if place]
    return [*recorded, home.path / "postgres", home.path / "valkey"]


class Supervision:
    """The loop over the parts. Its state is what `processes.json` shows."""

    def __init__(self, home: Home, told: Callable[[], bool], watch: Watch) -> None:
        self.home = home
        self.told = told
        self.watch = watch
        self.children: list[Child] = []

    def run(self, rows: list[Part], prepare: list[str], environment: dict[str, str], ready: Callable[[], None]) -> None:
        """Start, tend until told to stop, stop. Raises `ServerFault` when a part does not come up."""
        first = [part for part in rows if part.name in table.SERVER_PARTS]
        then = [part for part in rows if part.name not in table.SERVER_PARTS]
        try:
            self._bring_up(first)
            if prepare:
                self._prepare(prepare, environment)
            self._bring_up(then)
            ready()
            self._tend_until(lambda: False)
        except _Stopping:
            pass
        finally:
            self._stop_all()

    def _bring_up(self, parts: list[Part]) -> None:
        fresh = [Child(part, self.home.log(part.name), self._changed) for part in parts]
        self.children += fresh
        for child in fresh:
            child.start()
        deadline = time.monotonic() + START_SECONDS
        self._tend_until(lambda: _all_ready(fresh, deadline))

    def _prepare(self, command: list[str], environment: dict[str, str]) -> None:
        log = self.home.log("prepare")
        with (
            open_log(log) as output,
            subprocess.Popen(command, env=environment, stdout=output, stderr=output) as task,
        ):
            try:
                self._tend_until(lambda: task.poll() is not None)
            except BaseException:
                task.terminate()
                raise
        if task.returncode != 0:
            raise ServerFault(f"`{' '.join(command)}` {ending(task.returncode)}:\n{tail(log)}\nMore in {log}")

    def _tend_until(self, done: Callable[[], bool]) -> None:
        while not done():
            if self.told():
                raise _Stopping
            for child in self.children:
                child.tend()
            time.sleep(PULSE_SECONDS)

    def _stop_all(self) -> None:
        """Nodes first and at once, then the servers they need, PostgreSQL last."""
        nodes = [child for child in self.children if child.part.name not in table.SERVER_PARTS]
        ours = [child for child in reversed(self.children) if child not in nodes]
        for group in (nodes, *([server] for server in ours)):
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
        with contextlib.suppress(FileNotFoundError):  # someone deleted the home: we are about to stop
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
def _told_to_stop() -> Iterator[Callable[[], bool]]:
    """SIGTERM and SIGINT become an answer to a question, asked between two looks at the parts."""
    told: list[int] = []
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, lambda got, _frame: told.append(got)) for number in numbers]
    try:
        yield lambda: bool(told)
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _cut(tether: int | None) -> bool:
    """Whether the process at the other end of the pipe is gone."""
    return tether is not None and bool(select.select([tether], [], [], 0)[0])
