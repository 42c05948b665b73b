"""How a process is confined: what the kernel lets it do beyond its user id.

A fork of the fork server must not be allowed more than the caller that asked for it.
"""

import os
from contextlib import suppress
from pathlib import Path

# Of /proc/PID/status (proc(5)). Landlock does not show there, but needs `NoNewPrivs` or a capability.
STATUS = {"Uid", "Gid", "Groups", "NoNewPrivs", "Seccomp", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"}


def confinement(pid: int) -> dict[str, object]:
    """The confinement of a process, to compare with that of another.

    Returns its user, groups, capabilities, seccomp mode, namespaces, root directory and security label. Raises OSError
    if this process may not see them, or the process is gone.
    """
    place = Path("/proc", str(pid))
    lines = (line.split(":", 1) for line in (place / "status").read_text().splitlines())
    found: dict[str, object] = {name: value.split() for name, value in lines if name in STATUS}
    found |= {name: os.readlink(place / "ns" / name) for name in sorted(os.listdir(place / "ns"))}
    root = os.stat(place / "root")
    found["root"] = (root.st_dev, root.st_ino)
    with suppress(OSError):  # no security module
        found["label"] = (place / "attr" / "current").read_bytes()
    return found
