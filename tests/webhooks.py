"""A real HTTP server that accepts webhooks, refuses them or answers late."""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.listening import answering


@dataclass
class Webhook:
    """The received requests (headers, `body`, `arrived`), and the answer to the next ones."""

    url: str = ""
    answer: int = 200
    body: bytes = b""
    received: list[dict[str, Any]] = field(default_factory=list)
    before_answering: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.before_answering.set()


@contextlib.contextmanager
def webhook() -> Iterator[Webhook]:
    """Listen on a free port for the duration of a block; `url` is in apprise's form."""
    told = Webhook()

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            told.received.append(headers | {"body": body, "arrived": datetime.now(UTC)})
            told.before_answering.wait(10)
            self.send_response(told.answer)
            self.send_header("Content-Length", str(len(told.body)))
            self.end_headers()
            with contextlib.suppress(ConnectionError):  # who asked may have read enough
                self.wfile.write(told.body)

        def log_message(self, *_: object) -> None:
            pass

    with answering(ThreadingHTTPServer(("127.0.0.1", 0), Answer)) as server:
        told.url = f"json://127.0.0.1:{server.server_port}/"
        yield told
