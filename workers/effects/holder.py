"""Names who holds a lease, so that a node can tell which leases its dead processes left."""

import os
import socket
from dataclasses import dataclass

from uuid_utils.compat import uuid7


@dataclass(slots=True)
class OwnNode:
    """The Celery node of this process. `sign`: an id that no other node has; "": the process belongs to none."""

    sign: str = ""


node = OwnNode()  # set before the fork, so that all processes of a node have the same


def holder() -> str:
    """A name for this process as the holder of one lease: `NODE:PID:UUID`."""
    return f"{node.sign or socket.gethostname()}:{os.getpid()}:{uuid7()}"


def pid(holder: str) -> int:
    """The process that a holder's name says."""
    return int(holder.split(":")[1])
