"""The exporter: `/metrics` for Prometheus, read from PostgreSQL at each scrape, and `/healthcheck`."""

import logging
import signal
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from io import BytesIO
from socketserver import TCPServer, ThreadingMixIn
from threading import BoundedSemaphore, Lock
from time import monotonic
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import structlog
from prometheus_client import CollectorRegistry, Metric, generate_latest, make_wsgi_app
from sqlalchemy.exc import SQLAlchemyError

from interlock.workers.operations.allowed_hosts import answers_to
from interlock.workers.operations.metrics import Reader
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from interlock.workers.system import process_privacy
from interlock.workers.system.ended_by import ended_by
from interlock.workers.system.readiness import announce_ready
from interlock.workflows.errors import InterlockError

log = structlog.get_logger()

Respond = Callable[..., Any]
PLAIN = (("Content-Type", "text/plain; charset=utf-8"),)
PATIENCE_SECONDS = 15.0  # if a client takes this long to read its answer, the connection is closed
HEAD_SECONDS = 5.0  # likewise if it takes this long to send its request
HEAD_BYTES = 16_384
SHARED_SECONDS = 1.0  # scrapes within this time share one reading: the database is read once a second at most
AT_ONCE = 16  # concurrent requests; more are refused
BUSY = b"HTTP/1.0 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\n\r\n"


class TooBusy(InterlockError):
    """Another scrape has been reading the database for too long. Scrape again later, or repair the database."""


class CannotListen(InterlockError):
    """The address of the exporter is taken or not ours. Set INTERLOCK_METRICS_PORT or INTERLOCK_HOST."""


def registry_of(runtime: Runtime) -> CollectorRegistry:
    """A registry of prometheus_client with all of Interlock's metrics, for programs with an exporter of their own."""
    registry = CollectorRegistry()
    registry.register(Reader(runtime))
    return registry


def shown(runtime: Runtime) -> str:
    """The metrics as text, as a scrape would get them. Raises `DBAPIError` if the database is unreachable."""
    return generate_latest(registry_of(runtime)).decode()


class SharedReading:
    """A collector that shares one reading, or its error, among all scrapes within a second."""

    def __init__(self, reader: Reader) -> None:
        self._reader, self._reading, self._until = reader, Lock(), 0.0
        self._metrics: list[Metric] | Exception = []

    def collect(self) -> Iterable[Metric]:
        """Every metric. Raises the error of the reading, and `TooBusy` if another scrape reads for too long."""
        if not self._reading.acquire(timeout=PATIENCE_SECONDS):
            raise TooBusy(f"another scrape has been reading for {PATIENCE_SECONDS:.0f} s")
        try:
            if monotonic() >= self._until:
                self._metrics = self._read()
                self._until = monotonic() + SHARED_SECONDS
            metrics = self._metrics
        finally:
            self._reading.release()
        if isinstance(metrics, Exception):
            raise metrics
        return metrics

    def _read(self) -> list[Metric] | Exception:
        try:
            return list(self._reader.collect())
        except (SQLAlchemyError, InterlockError) as error:
            return error


def make_app(runtime: Runtime) -> Callable[[dict[str, Any], Respond], Iterable[bytes]]:
    """The exporter as a WSGI application. It answers 503 if the database is unreachable: Prometheus sees `up` at 0."""
    metrics: Callable[[dict[str, Any], Respond], Iterable[bytes]] = make_wsgi_app(_shared(runtime))

    def app(environ: dict[str, Any], respond: Respond) -> Iterable[bytes]:
        match environ["PATH_INFO"]:
            case "/metrics":
                try:
                    return metrics(environ, respond)
                except (SQLAlchemyError, InterlockError) as error:  # it is unreachable, or nothing runs here yet
                    reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
                    log.warning("scrape_failed", error=reason)
                    respond("503 Service Unavailable", list(PLAIN))
                    return [f"the database does not answer: {reason}\n".encode()]
            case "/healthcheck":
                respond("200 OK", list(PLAIN))
                return [b"OK\n"]
            case _:
                respond("404 Not Found", list(PLAIN))
                return [b"there are /metrics and /healthcheck\n"]

    return app


def _shared(runtime: Runtime) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(SharedReading(Reader(runtime)))
    return registry


class _Server(ThreadingMixIn, WSGIServer):
    """A thread for each scrape: one that waits for the database does not hold up the others."""

    daemon_threads = True
    block_on_close = False  # stopping does not wait for a scraper that hangs
    allowed_hosts: tuple[str, ...] = ()

    def __init__(self, *words: Any, **named: Any) -> None:
        self._room = BoundedSemaphore(AT_ONCE)
        super().__init__(*words, **named)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own, or refuse at once if there are too many."""
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            with suppress(OSError):
                request.setblocking(False)
                request.send(BUSY)
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer one request, in its thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def server_bind(self) -> None:
        """Bind without a reverse DNS lookup: an unreachable name server would delay the start."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = PATIENCE_SECONDS

    def handle(self) -> None:
        """Answer one request, after reading all of its head."""
        try:
            head = self._head()
        except OSError:  # too slow, or closed
            return
        self.rfile.close()
        self.rfile = BytesIO(head)
        super().handle()

    def _head(self) -> bytes:
        head, until = b"", monotonic() + HEAD_SECONDS
        while b"\r\n\r\n" not in head and len(head) <= HEAD_BYTES:
            self.connection.settimeout(max(until - monotonic(), 0.001))
            came = self.connection.recv(4096)
            if not came:
                raise ConnectionError
            head += came
        self.connection.settimeout(PATIENCE_SECONDS)
        return head

    def parse_request(self) -> bool:
        """Whether the request may be answered; if not, the error has been sent."""
        if not super().parse_request():
            return False
        hosts = self.headers.get_all("Host", [])
        own, allowed = self.connection.getsockname()[0], self.server.allowed_hosts  # type: ignore[attr-defined]
        if len(self.rfile.getvalue()) > HEAD_BYTES:  # type: ignore[attr-defined]
            self.send_error(431)
        elif not answers_to(hosts[0] if len(hosts) == 1 else None, own, allowed):
            self.send_error(421, "Not a name of this server", "INTERLOCK_ALLOWED_HOSTS adds names.")
        elif self.command not in ("GET", "HEAD"):
            self.send_error(405)
        else:
            return True
        return False

    def log_message(self, format: str, *args: Any) -> None:
        logging.getLogger(__name__).debug(format, *args)


def url(server: WSGIServer) -> str:
    """The URL to scrape, with the address the server listens on."""
    host = f"[{server.server_name}]" if ":" in server.server_name else server.server_name
    return f"http://{host}:{server.server_port}/metrics"


@contextmanager
def listening(runtime: Runtime, host: str, port: int) -> Iterator[WSGIServer]:
    """The exporter, bound to its address; call `serve_forever` on the yielded server. Port 0: any free one.

    Raises:
        CannotListen: the address is taken.
    """
    kind = _Server6 if ":" in host else _Server
    try:
        server = make_server(host, port, make_app(runtime), server_class=kind, handler_class=_Handler)
    except OSError as refused:
        raise CannotListen(
            f"cannot listen on {host}:{port}: {refused.strerror}. Set INTERLOCK_METRICS_PORT."
        ) from refused
    server.allowed_hosts = runtime.settings.allowed_hosts
    with server:
        yield server


def serve(settings: Settings, host: str, port: int, told: Callable[[str], None] = lambda _: None) -> None:
    """Be the exporter until SIGTERM, which ends this process.

    Args:
        settings: this process's.
        host: the address to listen on.
        port: 0 for any free one.
        told: called with the URL to scrape, once the exporter listens. Then it also creates the file
            `INTERLOCK_READY_FILE`.

    Raises:
        CannotListen: the address is taken.
    """
    process_privacy.hide(settings)
    with (
        ended_by({signal.SIGTERM}, code=0),
        closing(Runtime(settings)) as runtime,
        listening(runtime, host, port) as server,
    ):
        told(url(server))
        announce_ready()
        server.serve_forever()
