"""The shims of this process, which watch the commands that it runs. It also has other children, such as servers."""

from contextlib import suppress

import psutil

from tests.waiting import eventually


def shims() -> list[psutil.Process]:
    """Every live shim that is a child of this process."""
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if "interlock.workers.execution.shim" in " ".join(child.cmdline()):
                found.append(child)
    return found


def shim() -> psutil.Process:
    """The only shim, once it has become one: a process is a copy of this one until it executes its program."""
    (one,) = eventually(shims)
    return one
