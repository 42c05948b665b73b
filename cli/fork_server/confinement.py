"""How a process is confined: what the kernel lets it do beyond its user id.

A fork of the fork server must not be allowed more than the caller that asked for it, and a caller must not hand its
environment and open directory to a server inside a sandbox. So each end compares the other with itself.
"""

import os
import signal
import socket
import sys
from contextlib import suppress

# Of /proc/PID/status (proc(5)).
STATUS = {"Uid", "Gid", "Groups", "NoNewPrivs", "Seccomp", "Seccomp_filters"}
STATUS |= {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"}
SO_PEERPIDFD = 77  # Linux 6.5


def is_alike(connection: socket.socket) -> bool:
    """Whether the process that opened the other end of a connection has this one's user and confinement.

    Never with `no_new_privs`: such a process may be under Landlock, which /proc does not show. (Landlock without it
    takes CAP_SYS_ADMIN.) Raises OSError if the kernel cannot tell, or that process is gone.
    """
    process = connection.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD)
    try:
        here, there = confinement(os.getpid()), confinement(peer(connection))
        signal.pidfd_send_signal(process, 0)  # it has not ended, so that pid was not another process's meanwhile
    finally:
        os.close(process)
    return here == there and here["NoNewPrivs"] == ["0"]


def confinement(pid: int) -> dict[str, object]:
    """The confinement of a process, to compare with that of another.

    Returns its user, groups, capabilities, seccomp filters, namespaces, root directory and security label. Raises
    OSError if this process may not see them, or the process is gone.
    """
    place = f"/proc/{pid}"
    with open(f"{place}/status") as status:
        lines = (line.split(":", 1) for line in status)
        found: dict[str, object] = {name: value.split() for name, value in lines if name in STATUS}
    found |= {name: os.readlink(f"{place}/ns/{name}") for name in sorted(os.listdir(f"{place}/ns"))}
    root = os.stat(f"{place}/root")
    found["root"] = (root.st_dev, root.st_ino)
    with suppress(OSError), open(f"{place}/attr/current", "rb") as label:  # no security module
        found["label"] = label.read()
    return found


def peer(connection: socket.socket) -> int:
    """The process id at the other end of a connection (unix(7), `SO_PEERCRED`)."""
    return int.from_bytes(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[:4], sys.byteorder)
