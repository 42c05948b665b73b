"""Serves the API with uvicorn: bounded, patient with nobody, and loaded when the first request comes.

An installation at rest has this process, but not FastAPI and its models in memory: the first request waits for their
import, a third of a second. What only looks whether the process answers, `/api/health`, does not load them.
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from socket import AF_INET, AF_INET6, IPPROTO_TCP, SO_REUSEADDR, SOCK_STREAM, SOL_SOCKET, socket
from typing import TYPE_CHECKING, Any, Protocol

import structlog
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from interlock.workers.settings import LOOPBACK, Settings
from interlock.workers.system import process_privacy
from interlock.workers.system.readiness import announce_ready
from interlock.workers.telemetry import logs
from interlock.workflows.errors import InterlockError

if TYPE_CHECKING:
    from interlock.workers.client.async_client import AsyncRuntime

log = structlog.get_logger()

HEAD_SECONDS = 5.0  # a client that takes longer to send the head of a request is cut off
READ_SECONDS = 15.0  # likewise one that does not read its answer
HEAD_BYTES = 16_384
CONNECTIONS = 1_000
STOP_SECONDS = 5
DEFAULT_PORT = 8080
ALIVE_PATH, ALIVE_BODY = "/api/health", b'{"status": "ok"}'

Asgi = Callable[[Any, Any, Any], Awaitable[None]]


class Served(Protocol):
    """An application, and how to end what it does that would not end by itself."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""

    async def stop(self) -> None:
        """End it."""


Make = Callable[["AsyncRuntime"], Served]


class CannotServe(InterlockError):
    """The address of the API is taken or not ours, or its certificate cannot be read. See INTERLOCK_API_HOST."""


class Impatient(HttpToolsProtocol):
    """uvicorn's protocol, with limits on a request's head, on its time, and on that of the reading of an answer."""

    _limit: asyncio.TimerHandle | None = None
    _held = 0  # bytes of a head, of what follows a body or of what stands between its chunks, which the parser holds

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Called when a client has connected."""
        super().connection_made(transport)
        self._allow(HEAD_SECONDS)

    def data_received(self, data: bytes) -> None:
        """Called with what has come."""
        self._held += len(data)
        super().data_received(data)
        if self._held > HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response(f"The head of a request has at most {HEAD_BYTES:,} bytes.")
        elif self._limit is None and (self.cycle is None or self.cycle.response_complete):  # a head has begun
            self._allow(HEAD_SECONDS)

    def on_headers_complete(self) -> None:
        """Called at the end of its head. Raises `ValueError` if it is too large, which the parser tells as a 400."""
        if self._held > HEAD_BYTES:  # other requests may have come with it
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > HEAD_BYTES:
                raise ValueError(f"a head has at most {HEAD_BYTES:,} bytes")
        super().on_headers_complete()
        self._held = 0
        self._forgive()

    def on_body(self, body: bytes) -> None:
        """Called with a part of its body."""
        super().on_body(body)
        self._held = 0

    def on_message_complete(self) -> None:
        """Called at its end."""
        super().on_message_complete()
        self._held = 0

    def pause_writing(self) -> None:
        """Called when the client does not read fast enough."""
        super().pause_writing()
        self._allow(READ_SECONDS)

    def resume_writing(self) -> None:
        """Called when it has."""
        super().resume_writing()
        self._forgive()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called at the end."""
        self._forgive()
        super().connection_lost(exc)

    def _allow(self, seconds: float) -> None:
        self._forgive()
        self._limit = self.loop.call_later(seconds, self.transport.abort)

    def _forgive(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None


class Deferred:
    """The application, made when the first request comes that needs it."""

    def __init__(self, make: Make, settings: Settings) -> None:
        self._make, self._settings, self._making = make, settings, asyncio.Lock()
        self._app: Asgi | None = None
        self._stop: Callable[[], Awaitable[None]] | None = None
        self._close: Callable[[], Awaitable[None]] | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        if self._app is None and scope["type"] == "http" and scope["path"] == ALIVE_PATH:
            await _alive(send)
            return
        async with self._making:
            if self._app is None:
                self._app = await asyncio.to_thread(self._load)
        await self._app(scope, receive, send)

    def _load(self) -> Asgi:
        from sqlalchemy.util import greenlet_spawn  # noqa: PLC0415 - see the module

        from interlock.workers.client.async_client import AsyncRuntime  # noqa: PLC0415 - likewise

        runtime = AsyncRuntime(self._settings)
        self._close = lambda: greenlet_spawn(runtime.close)
        site = self._make(runtime)
        self._stop = site.stop
        return site

    async def stop(self) -> None:
        """End what would otherwise not end by itself."""
        if self._stop is not None:
            await self._stop()

    async def close(self) -> None:
        """Close the connections of the application."""
        if self._close is not None:
            await self._close()


async def _alive(send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": ALIVE_BODY})


class Announced(uvicorn.Server):
    """uvicorn's server, which says when it listens, and closes the application at the end."""

    def __init__(self, config: uvicorn.Config, app: Deferred, listens: Callable[[], None]) -> None:
        super().__init__(config)
        self._app, self._listens = app, listens

    async def startup(self, sockets: list[socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        self._listens()

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        """Stop listening, let requests end, and close."""
        await self._app.stop()
        await super().shutdown(sockets)
        await _end_others()
        await self._app.close()


async def _end_others() -> None:
    """Cancel what is still under way, and wait for it: a connection that comes back to a closed pool stays open."""
    if others := asyncio.all_tasks() - {asyncio.current_task()}:
        for each in others:
            each.cancel()
        await asyncio.wait(others, timeout=STOP_SECONDS)


def serve(make: Make, settings: Settings, host: str, port: int, told: Callable[[str], None] = lambda _: None) -> None:
    """Be the API until SIGTERM.

    Args:
        make: makes the application; called, in a thread, when the first request comes.
        settings: this process's.
        host: the address to listen on.
        port: 0 for any free one.
        told: called with the URL, once the API listens. Then it also creates the file `INTERLOCK_READY_FILE`.

    Raises:
        CannotServe: the address is taken, or the certificate cannot be used.
    """
    process_privacy.hide(settings)
    tls = settings.api_tls_certificate
    if host not in LOOPBACK and tls is None:
        log.warning("api_without_tls", host=host, advice="set INTERLOCK_API_TLS_CERTIFICATE, or use a proxy with TLS")
    app = Deferred(make, settings)
    with bound(host, port) as listener:
        scheme, address = ("http" if tls is None else "https"), listener.getsockname()
        name = f"[{address[0]}]" if ":" in address[0] else address[0]

        def listens() -> None:
            told(f"{scheme}://{name}:{address[1]}")
            announce_ready()

        Announced(configuration(app, settings), app, listens).run([listener])


def configuration(app: Deferred, settings: Settings) -> uvicorn.Config:
    """uvicorn's configuration. Raises `CannotServe` if the certificate cannot be used."""
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http=Impatient,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=STOP_SECONDS,
        ssl_certfile=settings.api_tls_certificate,
        ssl_keyfile=settings.api_tls_key,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as refused:
        raise CannotServe(f"the certificate or key of the API cannot be used: {refused}") from refused
    return config


def bound(host: str, port: int) -> socket:
    """A socket at an address, on which nobody listens yet. Raises `CannotServe` if it cannot be had.

    It names its protocol: asyncio sets TCP_NODELAY only where one is named, and an answer's body would otherwise wait
    for the client's delayed acknowledgement of its head, 40 ms.
    """
    listener = socket(AF_INET6 if ":" in host else AF_INET, SOCK_STREAM, IPPROTO_TCP)
    listener.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as refused:
        listener.close()
        raise CannotServe(f"cannot listen on {host}:{port}: {refused.strerror}. Set INTERLOCK_API_PORT.") from refused
    return listener


def configure_logs() -> None:
    """Log as the other parts do: the API's own lines, and uvicorn's warnings."""
    logs.configure(logging.INFO)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
