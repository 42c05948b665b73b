"""A limit on a key is never exceeded while workers are killed: tasks and effects, as seen from outside (LIMIT-4)."""

import os
import random
import select
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psycopg
import pytest

from interlock.workers.client.client import Client
from interlock.workers.effects import holder
from interlock.workers.engine.creation import Birth
from interlock.workers.overrides.limits import LimitedName, set_limit
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.runtime import Runtime
from tests.crewing import Site
from tests.listening import answering
from tests.nodes import Node, node
from tests.rights import grant
from tests.waiting import eventually

pytestmark = pytest.mark.integration
LIMIT, EFFECTS, TASKS, KILLS = 3, 25, 8, 6
BUSY_SECONDS = 0.25


class _Calls(ThreadingHTTPServer):
    """Answers after a while; notes how many callers that are alive it has at once."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Call)
        self.open: set[socket.socket] = set()
        self.most, self.names = 0, list[str]()
        self.noting = threading.Lock()

    def begun(self, caller: socket.socket, name: str) -> None:
        with self.noting:  # what was killed has closed its connection before its place was free
            self.open = {each for each in self.open if not _closed(each)} | {caller}
            self.most = max(self.most, len(self.open))
            self.names.append(name)

    def ended(self, caller: socket.socket) -> None:
        with self.noting:
            self.open.discard(caller)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Its caller was killed: that is what this test does."""


class _Call(BaseHTTPRequestHandler):
    server: _Calls

    def do_GET(self) -> None:
        self.server.begun(self.connection, self.path.strip("/"))
        threading.Event().wait(BUSY_SECONDS)
        self.server.ended(self.connection)
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def _closed(caller: socket.socket) -> bool:
    readable, _, _ = select.select([caller], [], [], 0)
    return bool(readable) and caller.recv(1, socket.MSG_PEEK) == b""


@contextmanager
def _watching(database_url: str) -> Iterator[list[int]]:
    """How many places were held at most, in snapshots of the database taken one after another."""
    most, ended = [0], threading.Event()

    def look() -> None:
        with psycopg.connect(database_url, autocommit=True) as connection:
            while not ended.wait(0.01):
                found = connection.execute(
                    "SELECT count(*) FROM interlock.limited_work WHERE limit_key = 'eu'"
                ).fetchone()
                most[0] = max(most[0], found[0] if found else 0)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield most
    finally:
        ended.set()
        thread.join()


def _kill_one(nodes: list[Node], chance: random.Random) -> None:
    """SIGKILL a pool process that is at work, or any."""
    victims = [child for each in nodes if not each.ended for child in each.process.children()]
    os.kill(chance.choice(victims).pid, signal.SIGKILL)


def _interrupted(dba: "psycopg.Connection[Any]", called: list[str]) -> bool:
    """Kill a process within a call, so that the effect is tried again; whether it was still at it as it died."""
    leased = """
    SELECT e.id, e.leased_by FROM effects e JOIN workflow_instances i ON i.id = e.workflow_id
     WHERE e.status = 'leased' AND i.entity_id = ANY (%s) LIMIT 1"""
    if (found := dba.execute(leased, (called,)).fetchone()) is None:
        return False
    with suppress(ProcessLookupError):
        os.kill(holder.pid(found[1]), signal.SIGKILL)
    return dba.execute("SELECT finished_at IS NULL FROM effects WHERE id = %s", (found[0],)).fetchone() == (True,)


@pytest.mark.timeout(240)
def test_limit_4_a_limit_of_three_is_never_exceeded_while_workers_are_killed(
    knowing: Callable[..., Runtime], tmp_path: Path, project: str, dba: "psycopg.Connection[Any]"
) -> None:
    own = Client(
        knowing("tests.limited_machines", project=project, backoff_base_seconds=0.01, backoff_cap_seconds=0.01)
    )
    settings = own.runtime.settings.model_copy(update={"effect_lease_seconds": 4.0, "max_attempts": 100})
    grant(own, "olga")
    terms = LimitedName("key", "eu")
    set_limit(own.runtime, terms, OverrideOrder("olga", "three servers"), at_once_most=LIMIT)
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    with ExitStack() as running:
        calls = running.enter_context(answering(_Calls()))
        receiver = f"http://127.0.0.1:{calls.server_port}"
        most = running.enter_context(_watching(str(settings.database_url)))
        words = ("worker", "-Q", "triggers,sweeps,effects,gates,work", "-c", "4")
        nodes = [
            running.enter_context(node(settings, tmp_path, *words, RECEIVER=receiver, INTERLOCK_SANDBOX="off"))
            for _ in range(2)
        ]
        running.enter_context(node(settings, tmp_path, "beat", "--schedule", str(tmp_path / "beat"), "--pidfile="))
        made: list[Birth] = []

        def top_up(waiting: int = 2 * LIMIT) -> None:
            """Have at least so many that were not called yet: more than the limit lets through."""
            lacking = range(len(made), len(set(calls.names)) + waiting)
            births = [own.birth("copy", f"C-{each}", context={"server": "eu"}, by="ann") for each in lacking]
            own.create_many(births)
            made.extend(births)
            for each in births:
                own.fire(each.id, "serve", by="ann")

        top_up(EFFECTS)
        tasks = Site(own, project).submit(TASKS, limit_key="eu", max_retries=50, command=["sleep", "0.2"])
        # What chance kills may be between two calls.
        eventually(lambda: top_up() or _interrupted(dba, calls.names), timeout=60)
        for number in range(KILLS):
            more = len(calls.names) + 2
            eventually(lambda more=more: top_up() or len(calls.names) >= more, timeout=60)  # type: ignore[misc]
            if number == KILLS // 2:
                nodes[0].kill()
            else:
                _kill_one(nodes, chance)
        every = [*(each.id for each in made), *tasks]
        ends = (
            "SELECT count(*) FROM workflow_instances WHERE id = ANY (%s) AND current_state IN ('served', 'completed')"
        )
        eventually(lambda: dba.execute(ends, (every,)).fetchone() == (len(every),), timeout=120)
    assert calls.most <= LIMIT, f"seed {seed}"
    assert most[0] == LIMIT, f"seed {seed}"
    assert set(calls.names) == {each.entity_id for each in made}
    assert len(calls.names) > len(made), "some were tried again"
