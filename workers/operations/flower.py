"""Flower with two checks before every page: the Host header, and a limit on failed logins.

`python -m interlock.workers.node flower …` is `celery -A interlock.workers.main:app flower …` with these checks.
"""

import time
from collections import OrderedDict
from typing import Any

import click
import flower.command
import tornado.web
from celery import Celery
from celery.bin.base import CLIContext
from flower.app import Flower
from tornado.httputil import HTTPServerRequest

from interlock.workers.operations.allowed_hosts import answers_to
from interlock.workers.settings import settings

FAILURES = 10  # of one address, within `WINDOW_SECONDS`
WINDOW_SECONDS = 60.0
ADDRESSES = 1000  # at most so many are remembered; the least recent failure is forgotten first


class Failures:
    """Counts the recent failed logins of each address."""

    def __init__(self) -> None:
        self._times: OrderedDict[str, list[float]] = OrderedDict()

    def add(self, address: str, now: float) -> None:
        """Record a failed login."""
        self._times[address] = [*self._lately(address, now), now][-FAILURES:]
        self._times.move_to_end(address)
        if len(self._times) > ADDRESSES:
            self._times.popitem(last=False)

    def too_many(self, address: str, now: float) -> bool:
        """Whether the address must wait. Correct passwords must wait, too, or guessing could go on unnoticed."""
        return len(self._lately(address, now)) >= FAILURES

    def _lately(self, address: str, now: float) -> list[float]:
        return [each for each in self._times.get(address, ()) if now - each < WINDOW_SECONDS]


class RefusingHandler(tornado.web.RequestHandler):
    """Answers with a status and one plain line, whatever the method."""

    def initialize(self, status: int, message: str) -> None:
        """Called for each request."""
        self.status, self.message = status, message

    def prepare(self) -> None:
        """Called before any method, and before any check of Flower's."""
        self.set_status(self.status)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(f"{self.message}\n")


class GuardedFlower(Flower):  # type: ignore[misc]
    """Flower with the checks that every request must pass."""

    def __init__(self, *words: Any, **named: Any) -> None:
        super().__init__(*words, **named)
        self._failures = Failures()

    def find_handler(self, request: HTTPServerRequest, **named: Any) -> Any:
        """The handler of the requested page, or of a refusal."""
        hosts = request.headers.get_list("Host")
        if not answers_to(hosts[0] if len(hosts) == 1 else None, _own_address(request), settings().allowed_hosts):
            return self._refuse(request, 421, "not a name of this server: see INTERLOCK_ALLOWED_HOSTS")
        if request.headers.get("Authorization") and self._failures.too_many(str(request.remote_ip), time.monotonic()):
            return self._refuse(request, 429, f"too many failed logins: wait {WINDOW_SECONDS:.0f} s")
        return super().find_handler(request, **named)

    def _refuse(self, request: HTTPServerRequest, status: int, message: str) -> Any:
        return self.get_handler_delegate(request, RefusingHandler, {"status": status, "message": message})

    def log_request(self, handler: tornado.web.RequestHandler) -> None:
        """Called when a request is answered."""
        request = handler.request
        if handler.get_status() == 401 and request.headers.get("Authorization"):
            self._failures.add(str(request.remote_ip), time.monotonic())
        super().log_request(handler)


def _own_address(request: HTTPServerRequest) -> str:
    """The address that the client reached, one of those that the server listens on."""
    stream = getattr(request.connection, "stream", None)
    return str(stream.socket.getsockname()[0]) if stream else ""


def run(app: Celery, words: list[str]) -> None:
    """Run Celery's command `flower`, with our Flower, for an app and with these options; never returns."""
    flower.command.Flower = GuardedFlower
    context = CLIContext(app, no_color=True, workdir=None, quiet=True)
    flower.command.flower.main(words, "flower", parent=click.Context(click.Command("celery"), obj=context))
