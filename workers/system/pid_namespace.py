"""Which processes a pid of ours is unique among: those of this boot of the machine, in our pid namespace."""

import os
from contextlib import suppress
from functools import cache
from pathlib import Path

BOOT = Path("/proc/sys/kernel/random/boot_id")


@cache
def pid_namespace() -> str | None:
    """A name of this boot and pid namespace (proc(5), pid_namespaces(7)); None where neither is to be had.

    Within one of these, a pid that does not exist says for certain that its process has ended.
    """
    with suppress(OSError):
        return f"{BOOT.read_text().strip()}:{os.stat('/proc/self/ns/pid').st_ino}"
    return None
