"""Choose a server's port: the configured one, else the one of last time, else a free one."""

import errno
import secrets
import socket
import sys
from collections.abc import Collection, Iterator
from itertools import chain

import psutil

from interlock.workflows.errors import InterlockError, ServerFault

# Below Linux's range for outgoing connections (32768 and up), so that a kept port stays free for us.
LOWEST, HIGHEST = 20_000, 32_000
# The default ports of users' own PostgreSQL, Redis and RabbitMQ.
NEVER_CHOSEN = frozenset({5432, 6379, 5672})
_CHOSEN: set[int] = set()


class PortTaken(ServerFault):
    """Another program listens on a configured port. Stop it, or set another port."""


def settle(
    setting: str,
    explicit: int | None,
    kept: int | None,
    host: str,
    *,
    promised: Collection[int | None] = (),
) -> int:
    """The port for the server of `setting` (`INTERLOCK_POSTGRES_PORT`, ...), which is free now on `host`.

    `promised` ports are free, but reserved for our other servers. Raises `PortTaken` if a configured port is taken,
    `InterlockError` if no port is free.
    """
    if explicit is not None:
        if not is_free(explicit, host):
            raise PortTaken(f"{taken(explicit)}: stop it, or set {setting} to another port")
        return explicit
    candidates = chain([kept] if kept else [], _anywhere())
    for port in candidates:
        if port not in NEVER_CHOSEN and port not in promised and is_free(port, host) and _reserve(port):
            return port
    raise InterlockError(f"no free port found on {host}; set {setting}")


def _reserve(port: int) -> bool:
    """Whether no other Interlock on this machine has chosen the port, even if it does not listen yet.

    The choice is marked by an abstract socket until this process ends (on Linux; elsewhere it is not checked).
    """
    if sys.platform != "linux" or port in _CHOSEN:
        return True
    mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        mark.bind(f"\0interlock-port-{port}")
    except OSError:
        mark.close()
        return False
    mark.detach()  # open, and so ours, for as long as this process lives
    _CHOSEN.add(port)
    return True


def _anywhere() -> Iterator[int]:
    # Random, so that two homes that start at the same moment do not choose the same port.
    return (LOWEST + secrets.randbelow(HIGHEST - LOWEST) for _ in range(200))


def is_free(port: int, host: str) -> bool:
    """Whether a server could listen on `port` of `host` now (connections in TIME_WAIT do not count)."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as refused:
            if refused.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise InterlockError(f"cannot listen on {host}: {refused.strerror}. Set INTERLOCK_HOST.") from refused
    return True


def taken(port: int) -> str:
    """`port 15432 is taken (by pid 7 postgres)`; without the parenthesis if we may not know who."""
    return f"port {port} is taken{_occupant(port)}"


def _occupant(port: int) -> str:
    try:
        listening = [
            c.pid
            for c in psutil.net_connections("inet")
            if c.laddr and c.laddr.port == port and c.status == psutil.CONN_LISTEN and c.pid
        ]
        return f" (by pid {listening[0]} {psutil.Process(listening[0]).name()})" if listening else ""
    except psutil.Error:
        return ""
