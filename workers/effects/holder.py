"""Names who holds a lease, so that others can tell which leases dead processes left."""

import os
import re
import socket
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from uuid_utils.compat import uuid7

from interlock.workers.system.pid_namespace import pid_namespace


@dataclass(slots=True)
class OwnNode:
    """The Celery node of this process. `sign`: an id that no other node has; "": the process belongs to none."""

    sign: str = ""


_NAME = re.compile(r"(?P<node>.+):(?P<pid>[0-9]+):(?P<lease>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}):.*")
node = OwnNode()  # set before the fork, so that all processes of a node have the same


def holder() -> str:
    """A name for this process as the holder of one lease: `NODE:PID:UUID:NAMESPACE`, the pid's, if that is known."""
    return f"{node.sign or socket.gethostname()}:{os.getpid()}:{uuid7()}:{pid_namespace() or ''}"


def pid(holder: str) -> int:
    """The process that a holder's name says."""
    return int(holder.split(":")[1])


def described(holder: str) -> str:
    """What a holder's name says to people: `process 5875 of node N since 2026-11-26 02:31:07 UTC`; else the name.

    The lease began when its UUID was made, whose first 48 bits are that time in ms (RFC 9562, version 7).
    """
    if not (said := _NAME.fullmatch(holder)):
        return holder
    since = datetime.fromtimestamp((UUID(said["lease"]).int >> 80) / 1000, UTC)
    return f"process {said['pid']} of node {said['node']} since {since:%Y-%m-%d %H:%M:%S} UTC"


def is_ours(holder: str) -> bool:
    """Whether a holder's name is that of a process of our node."""
    return holder.startswith(f"{node.sign}:")
