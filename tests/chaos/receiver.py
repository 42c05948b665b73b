"""A webhook's other end: notes what arrives, with its fencing token, and stalls what it is told to."""

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.listening import answering

STALL_SECONDS = 60.0  # nobody is stalled for ever, whatever happens to the test


@dataclass(frozen=True)
class Arrival:
    """One notice as it came in: which effect, under which token, about what, from which local port."""

    effect: str
    token: int
    title: str
    port: int


@dataclass
class Receiver:
    """Everything that arrived, in order."""

    arrivals: list[Arrival] = field(default_factory=list)
    url: str = ""
    _stalled: dict[str, threading.Event] = field(default_factory=dict)

    def about(self, name: str) -> list[Arrival]:
        """What arrived about an entity."""
        return [each for each in list(self.arrivals) if f" {name}:" in each.title]

    @contextlib.contextmanager
    def stalling(self, name: str) -> Iterator[threading.Event]:
        """Do not answer the first notice about an entity until the event is set, or the block ends."""
        gate = self._stalled[name] = threading.Event()
        try:
            yield gate
        finally:
            gate.set()
            del self._stalled[name]

    def take(self, arrival: Arrival) -> None:
        """Note an arrival; returns when it may be answered."""
        self.arrivals.append(arrival)
        for name, gate in list(self._stalled.items()):
            if self.about(name) == [arrival]:
                gate.wait(STALL_SECONDS)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64
    receiver: Receiver

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Its caller was killed: that is what these tests do."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.receiver.take(
            Arrival(
                self.headers["Interlock-Effect"],
                int(self.headers["Interlock-Token"]),
                body["title"],
                self.client_address[1],
            )
        )
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextlib.contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver on a free port of this machine while the block runs; `url` is how apprise writes it."""
    with answering(_Server(("127.0.0.1", 0), _Handler)) as server:
        server.receiver = Receiver(url=f"json://127.0.0.1:{server.server_port}/")
        yield server.receiver
