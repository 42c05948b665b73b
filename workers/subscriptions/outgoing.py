"""Connections to the endpoints of subscriptions: to no address of our own network, and never for longer than allowed.

Whoever names an endpoint must not reach by it what only our nodes can reach (server-side request forgery). The address
that a name resolves to is checked, and that very address is connected to, so that a name cannot change in between.
"""

import os
import socket
from collections.abc import Collection, Mapping
from contextlib import suppress
from ipaddress import ip_address
from threading import Timer
from types import TracebackType
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from requests_hardened.ip_filter import InvalidIPAddress
from requests_hardened.ip_filter_adapter import IPFilterAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from interlock.workers.effects.signed_call import CallNotAccepted, send
from interlock.workers.subscriptions.hosts import EndpointNotAllowed, is_own_host, require_allowed
from interlock.workflows.output.urls import shown_url

WAIT_SECONDS = 10.0  # for a connection, and for each part of an answer
CALL_SECONDS = 15.0  # for a whole call; then its connection is cut


class Outgoing:
    """The connection to one endpoint, used by one thread; kept open from one call to the next.

    Args:
        url: the endpoint.
        hosts: those of our own network that may be delivered to (INTERLOCK_SUBSCRIPTION_HOSTS).

    Raises:
        EndpointNotAllowed: the URL is not https.
    """

    def __init__(self, url: str, hosts: Collection[str]) -> None:
        require_allowed(url, hosts)
        self._url, self._line = url, _Line()
        self._session = requests.Session()
        self._session.trust_env = False  # a proxy would resolve the name itself
        self._session.verify = os.environ.get("REQUESTS_CA_BUNDLE") or True
        own = is_own_host(url, hosts)
        self._session.mount("http://", _OwnAdapter(self._line))  # `require_allowed`: an own host
        self._session.mount("https://", (_OwnAdapter if own else _PublicAdapter)(self._line))

    def __enter__(self) -> "Outgoing":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.close()
        self._line.forget()

    def send(self, text: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
        """Send one POST; returns the answer's `status` and `body`.

        Raises:
            CallNotAccepted: the answer is none of 2xx, too large, or did not come within `CALL_SECONDS`.
            EndpointNotAllowed: its address is not public.
        """
        limit = Timer(CALL_SECONDS, self._line.cut)
        limit.daemon = True
        limit.start()
        try:
            answer = send(self._session, self._url, text, headers, timeout_seconds=WAIT_SECONDS)
        finally:
            limit.cancel()
        if self._line.was_cut:  # half of an answer looks like a whole one
            raise CallNotAccepted(f"{shown_url(self._url)} did not answer within {CALL_SECONDS:g} s")
        return answer


class _Line:
    """A second handle of the socket in use, by which another thread can cut the connection, also in a handshake."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self.was_cut = False

    def hold(self, made: socket.socket) -> socket.socket:
        self.forget()
        self._socket = made.dup()
        return made

    def cut(self) -> None:
        self.was_cut = True
        if self._socket is not None:
            with suppress(OSError):  # it is closed already
                self._socket.shutdown(socket.SHUT_RDWR)

    def forget(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class _Held:
    """Adapters whose connections can be cut."""

    poolmanager: Any
    _line: _Line

    def hold(self) -> None:
        line = self._line

        class HeldConnection(HTTPConnection):
            def _new_conn(self) -> socket.socket:
                return line.hold(super()._new_conn())

        class HeldSecureConnection(HTTPSConnection):
            def _new_conn(self) -> socket.socket:
                return line.hold(super()._new_conn())

        plain = type("PlainPool", (HTTPConnectionPool,), {"ConnectionCls": HeldConnection})
        secure = type("SecurePool", (HTTPSConnectionPool,), {"ConnectionCls": HeldSecureConnection})
        self.poolmanager.pool_classes_by_scheme = {"http": plain, "https": secure}


class _OwnAdapter(_Held, HTTPAdapter):
    """For hosts of our own network."""

    def __init__(self, line: _Line) -> None:
        super().__init__()
        self._line = line
        self.hold()


class _PublicAdapter(_Held, IPFilterAdapter):  # type: ignore[misc] # untyped
    """For all others: only public addresses, over TLS."""

    def __init__(self, line: _Line) -> None:
        super().__init__(is_https_proto=True)
        self._line = line
        self.hold()

    def build_connection_pool_key_attributes(self, request: Any, verify: Any, cert: Any = None) -> Any:
        """As the library does, with an error that says what to do. Raises `EndpointNotAllowed`."""
        try:
            parts, keys = super().build_connection_pool_key_attributes(request, verify, cert)
        except InvalidIPAddress as refused:
            raise _not_public(request.url, refused) from None
        address = ip_address(parts["host"].strip("[]"))  # what will be connected to
        if not address.is_global or address.is_reserved or getattr(address, "is_site_local", False):
            raise _not_public(request.url, address)  # such as fec0::/10, which the library knows nothing of
        return parts, keys


def _not_public(url: str, address: object) -> EndpointNotAllowed:
    return EndpointNotAllowed(
        f"{shown_url(url)} has the address {address}, which is not on the public internet. If events are to go there "
        "all the same, name its host in INTERLOCK_SUBSCRIPTION_HOSTS"
    )
