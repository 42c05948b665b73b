"""What every request must pass before it is looked at: Host, path, size, depth, time. And a line in the log for each.

A request is read whole before any of it is parsed, so nobody holds more than `BODY_BYTES` and `BODY_SECONDS`.
"""

import asyncio
from collections.abc import Mapping
from functools import lru_cache
from time import monotonic

import structlog
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from interlock.api import problems
from interlock.api.problems import ProblemKind
from interlock.api.replaying import replayed
from interlock.workers.operations.allowed_hosts import answers_to
from interlock.workers.settings import Settings
from interlock.workflows.input.limits import DEPTH, deeper, read

log = structlog.get_logger()

BODY_BYTES = 4 * 2**20
BODY_SECONDS = 10.0
ENVELOPE = 5  # how much deeper a caller's value stands in a request than by itself


class OutOfBounds(Exception):
    """A request that is not looked at."""

    def __init__(self, kind: ProblemKind, detail: str) -> None:
        super().__init__(detail)
        self.kind, self.detail = kind, detail


class Bounds:
    """ASGI middleware: refuses what is out of bounds, and logs each request, without its query, headers and body."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._answers_to = lru_cache(64)(  # it is asked for each request, mostly the same
            lambda host, own: answers_to(host.decode("latin-1"), own, settings.allowed_hosts)
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = monotonic(), 500
        scope.setdefault("state", {})

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if more := scope["state"].get("headers"):
                    MutableHeaders(scope=message).update(more)
            await send(message)

        said = dict(reversed(scope["headers"]))  # the first of each name
        try:
            self._require_host(scope)
            _require_one_line(scope)
            whole = await _body(said, receive)
            if b"yaml" not in said.get(b"content-type", b""):  # a plan, whose reader has bounds of its own
                _require_shallow(whole)
            await self._app(scope, replayed(whole, receive), noting)
        except OutOfBounds as refused:
            headers = {"Connection": "close"}
            await problems.answer(refused.kind, refused.detail, headers=headers)(scope, receive, noting)
        finally:
            _log(scope, status, monotonic() - began)

    def _require_host(self, scope: Scope) -> None:
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        own = (scope.get("server") or ("",))[0]
        if not self._answers_to(hosts[0] if len(hosts) == 1 else b"", own):
            raise OutOfBounds(problems.WRONG_HOST, "INTERLOCK_ALLOWED_HOSTS adds names.")


def _require_one_line(scope: Scope) -> None:
    """Raise `OutOfBounds` if a path has a line break: routing would take some for another path, others for none."""
    if "\n" in scope["path"]:
        raise OutOfBounds(problems.UNREADABLE, "A path has no line break (%0A).")


async def _body(said: Mapping[bytes, bytes], receive: Receive) -> bytes:
    """All of a request's body. Raises `OutOfBounds` if it is too large or comes too slowly."""
    announced = said.get(b"content-length", b"0")
    if b"transfer-encoding" in said and b"content-length" in said:  # each says another end (RFC 9112, 6.1)
        raise OutOfBounds(problems.UNREADABLE, "Give Content-Length or Transfer-Encoding, not both.")
    if not announced.isdigit() or int(announced) > BODY_BYTES:
        raise _too_large()
    whole, more = bytearray(), True
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while more:
                message = await receive()
                whole += message.get("body", b"")
                more = message.get("more_body", False) and message["type"] == "http.request"
                if len(whole) > BODY_BYTES:
                    raise _too_large()
    except TimeoutError:
        raise OutOfBounds(problems.SLOW, f"A request must be sent within {BODY_SECONDS:g} s.") from None
    return bytes(whole)


def _too_large() -> OutOfBounds:
    return OutOfBounds(problems.TOO_LARGE, f"A request has at most {BODY_BYTES:,} bytes.")


def _require_shallow(body: bytes) -> None:
    """Raise `OutOfBounds` if JSON is nested deeper than a caller's value may be; what is no JSON is refused later."""
    depth = DEPTH + ENVELOPE
    if body.count(b"{") + body.count(b"[") <= depth:
        return
    try:
        value = read(body)
    except ValueError as error:
        raise OutOfBounds(problems.UNREADABLE, f"The body is no JSON that can be read: {error}") from None
    if deeper(value, depth):
        raise OutOfBounds(problems.INVALID, f"JSON may be nested {DEPTH} deep.")


def _log(scope: Scope, status: int, seconds: float) -> None:
    log.info(
        "http_request",
        method=scope["method"],
        path=scope["path"],
        status=status,
        seconds=round(seconds, 4),
        token_id=scope["state"].get("token_id"),
        by=scope["state"].get("by"),
    )
