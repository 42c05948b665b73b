"""Which port a server gets: the one set, else the one kept from last time, else a free one."""

import errno
import secrets
import socket
from collections.abc import Collection, Iterator
from itertools import chain

import psutil

from workflows.errors import InterlockError, ServerFault

# Below the range Linux hands to outgoing connections (32768 and up), so that a kept port stays ours.
LOWEST, HIGHEST = 20_000, 32_000
# What people expect to be their own PostgreSQL, Redis and RabbitMQ.
NEVER_CHOSEN = frozenset({5432, 6379, 5672})


class PortTaken(ServerFault):
    """Another program listens on a port that was asked for. Stop it, or set another port."""


def settle(
    setting: str,
    explicit: int | None,
    kept: int | None,
    host: str,
    *,
    promised: Collection[int | None] = (),
) -> int:
    """The port to use for what `setting` (`INTERLOCK_POSTGRES_PORT`, ...) names, free now on `host`.

    `promised` ports are free but will be our own other servers'.
    Raises `PortTaken` when it was asked for explicitly and is taken, `InterlockError` when nothing is free.
    """
    if explicit is not None:
        if not is_free(explicit, host):
            raise PortTaken(f"{taken(explicit)}: stop it, or set {setting} to another port")
        return explicit
    candidates = chain([kept] if kept else [], _anywhere())
    for port in candidates:
        if port not in NEVER_CHOSEN and port not in promised and is_free(port, host):
            return port
    raise InterlockError(f"no free port found on {host}; set {setting}")


def _anywhere() -> Iterator[int]:
    # At random, so that two homes that start at the same moment do not settle on the same one.
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
    """`port 15432 is taken (by pid 7 postgres)`, or without the parenthesis where we may not know."""
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
