"""The wardens of this process: who watches the commands that it runs. It has other children, servers among them."""

from contextlib import suppress

import psutil


def wardens() -> list[psutil.Process]:
    """Every warden alive that this process asked for."""
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if "workers.execution.warden" in " ".join(child.cmdline()):
                found.append(child)
    return found


def warden() -> psutil.Process:
    """The only one."""
    (one,) = wardens()
    return one
