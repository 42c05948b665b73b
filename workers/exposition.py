"""The exporter: `/metrics` for Prometheus, read from PostgreSQL at each scrape, and `/healthcheck`."""

import logging
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from socketserver import TCPServer, ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import structlog
from prometheus_client import CollectorRegistry, generate_latest, make_wsgi_app
from sqlalchemy.exc import SQLAlchemyError

from workers.metrics import Reader
from workers.runtime import Runtime
from workflows.errors import InterlockError

log = structlog.get_logger()

Respond = Callable[..., Any]
PLAIN = (("Content-Type", "text/plain; charset=utf-8"),)
PATIENCE_SECONDS = 15.0  # a client that says nothing for so long is hung up on


class CannotListen(InterlockError):
    """The address of the exporter is taken or not ours. Set INTERLOCK_METRICS_PORT or INTERLOCK_HOST."""


def registry_of(runtime: Runtime) -> CollectorRegistry:
    """A registry of prometheus_client's with all that Interlock tells, for programs with an exporter of their own."""
    registry = CollectorRegistry()
    registry.register(Reader(runtime))
    return registry


def shown(runtime: Runtime) -> str:
    """The exposition as text, as a scrape would get it. Raises `DBAPIError` when the database is away."""
    return generate_latest(registry_of(runtime)).decode()


def make_app(runtime: Runtime) -> Callable[[dict[str, Any], Respond], Iterable[bytes]]:
    """The exporter as a WSGI application. A database that is away is a 503: Prometheus then sees `up` at 0."""
    metrics: Callable[[dict[str, Any], Respond], Iterable[bytes]] = make_wsgi_app(registry_of(runtime))

    def app(environ: dict[str, Any], respond: Respond) -> Iterable[bytes]:
        match environ["PATH_INFO"]:
            case "/metrics":
                try:
                    return metrics(environ, respond)
                except (SQLAlchemyError, InterlockError) as error:  # it is away, or nothing runs here yet
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


class _Server(ThreadingMixIn, WSGIServer):
    """A thread a scrape: one that waits for the database does not hold up the others."""

    daemon_threads = True
    block_on_close = False  # whoever stops it does not wait for a scraper that went to sleep

    def server_bind(self) -> None:
        """Bind without asking a name server what we are called: one that is away would hold the start up."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = PATIENCE_SECONDS

    def log_message(self, format: str, *args: Any) -> None:
        logging.getLogger(__name__).debug(format, *args)


def url(server: WSGIServer) -> str:
    """Where it is scraped: the address it listens on."""
    host = f"[{server.server_name}]" if ":" in server.server_name else server.server_name
    return f"http://{host}:{server.server_port}/metrics"


@contextmanager
def listening(runtime: Runtime, host: str, port: int) -> Iterator[WSGIServer]:
    """The exporter, bound to its address; call `serve_forever` on what is yielded. Port 0: any free one.

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
    with server:
        yield server
