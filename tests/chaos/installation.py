"""A whole installation in a directory of its own: every part supervised, found by what it is, and broken on purpose."""

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import psycopg

from interlock.cli.server.up_down import PREPARE
from interlock.supervisor import daemon, orphans, purge
from interlock.supervisor.home import Home, home_of
from interlock.supervisor.processes import status
from interlock.supervisor.processes.loop import data_places
from interlock.supervisor.servers import data_dirs, endpoints
from interlock.workers.client.client import Client
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from tests.chaos.receiver import Receiver
from tests.subscribing import secrets_in
from tests.waiting import eventually

DEFINITIONS = "tests.chaos.machines_of_chaos"
ROOT = Path(__file__).parents[2]
BACK_SECONDS = 60.0  # a busy machine may take so long to start a part again
LEASE_SECONDS = 3.0
TRIGGER_NODES = ("triggers1", "triggers2")


@dataclass(frozen=True)
class Installation:
    """PostgreSQL, Valkey, two trigger nodes, one effect node and beat, each started again when it dies."""

    settings: Settings
    receiver: Receiver
    _logins: "list[psycopg.Connection[Any]]" = field(default_factory=list)

    @property
    def home(self) -> Home:
        return home_of(self.settings)

    @contextlib.contextmanager
    def client(self) -> Iterator[Client]:
        """An agent's own client."""
        with Client(Runtime(self.settings)) as client:
            yield client

    def sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Ask PostgreSQL, as a DBA would."""
        if self._logins and (found := self._asked(statement, values)) is not None:
            return found
        self._logins.append(psycopg.connect(endpoints.load(self.home).superuser_url, autocommit=True))
        return self._logins[-1].execute(statement, values).fetchall()  # type: ignore[call-overload,no-any-return]

    def log_out(self) -> None:
        while self._logins:
            self._logins.pop().close()

    def _asked(self, statement: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]] | None:
        """The answer on the last login, which takes a tenth of another one; None: its server is no more."""
        try:
            return self._logins[-1].execute(statement, values).fetchall()  # type: ignore[call-overload,no-any-return]
        except psycopg.OperationalError:
            self.log_out()
            return None

    def part(self, name: str) -> dict[str, Any]:
        """What the supervisor last knew of a part."""
        return next(part for part in status.recorded(self.home) if part["name"] == name)

    def process(self, name: str) -> psutil.Process:
        """A part's own process."""
        return psutil.Process(self.part(name)["pid"])

    def pool(self, name: str) -> list[psutil.Process]:
        """The pool processes of a worker node."""
        return self.process(name).children()

    def rss(self, name: str) -> int:
        """Resident bytes of a part and its children."""
        return sum(each.memory_info().rss for each in [self.process(name), *self.pool(name)])

    def in_transaction(self) -> str:
        """The trigger node whose PostgreSQL backend is in a transaction now; empty: none."""
        ports = {
            row[0]
            for row in self.sql(
                "SELECT client_port FROM pg_stat_activity WHERE application_name = 'interlock'"
                " AND state = 'idle in transaction' AND xact_start < clock_timestamp() - interval '0.1 s'"
            )
        }
        return next((name for name in TRIGGER_NODES if ports and ports & _local_ports(self.process(name))), "")

    def sending(self, port: int) -> psutil.Process:
        """The pool process of the effect node that holds a connection from this local port."""
        return next(child for child in self.pool("effects") if port in _local_ports(child))

    @contextlib.contextmanager
    def broken(self, name: str, how: signal.Signals) -> Iterator[None]:
        """Signal a part; after the block it is running again, started by the supervisor."""
        before = self.part(name)
        os.kill(before["pid"], how)
        yield
        eventually(lambda: self.part(name)["restarts"] > before["restarts"], timeout=BACK_SECONDS)
        eventually(lambda: self._all_ready() and status.status(self.settings).ready, timeout=BACK_SECONDS)

    def _all_ready(self) -> bool:
        """As the supervisor recorded it, which is asked again and again: `status` asks each server for an answer."""
        return {part["state"] for part in status.recorded(self.home)} == {"ready"}


def _local_ports(process: psutil.Process) -> set[int]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return {connection.laddr.port for connection in process.net_connections("tcp")}
    return set()


@contextlib.contextmanager
def installed(directory: Path, receiver: Receiver, **more: Any) -> Iterator[Installation]:
    """An installation below `directory` while the block runs. It ends with this process, even when that is killed."""
    chosen: dict[str, Any] = {
        "home": directory / "home",
        "definitions": (DEFINITIONS,),
        "notify_urls": (receiver.url,),
        "effect_lease_seconds": LEASE_SECONDS,
        "backoff_base_seconds": 0.2,
        "backoff_cap_seconds": 1.0,
        "heartbeat_seconds": 1.0,
        "recovery_seconds": 6.0,
        "max_attempts": 30,
        "dumpable": True,  # tests look for who holds a connection
    }
    chosen |= {"secrets": secrets_in(directory / "secrets"), "subscription_hosts": ("127.0.0.1",)}
    settings = Settings(**chosen | more)
    made = Installation(settings, receiver)
    tether, hold = os.pipe()
    try:
        process = daemon.launch(settings, without=("flower",), prepare=PREPARE, tether=tether)
        try:
            yield made
        finally:
            made.log_out()
            process.terminate()
            process.wait()
    finally:
        os.close(tether)
        os.close(hold)
        left = orphans.of_home(made.home, data_places(made.home))
        ports = [port for port in _ports(made.home) if port in _listening()]
        purge.purge(made.home)
        assert not left
        assert not ports
        assert not made.home.path.exists()
        assert not data_dirs.outside(made.home).exists()


def _ports(home: Home) -> list[int]:
    known = endpoints.load(home)
    return [port for port in (known.postgres_port, known.redis_port) if port]


def _listening() -> set[int]:
    return {each.laddr.port for each in psutil.net_connections("tcp") if each.status == psutil.CONN_LISTEN}
