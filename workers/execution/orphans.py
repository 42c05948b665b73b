"""Kills the processes that a command left when its shim was killed, found by a mark in their environment.

A sandbox ends its processes by itself. Without one, one that clears its environment and leaves the session escapes.
"""

import os
from contextlib import suppress

import psutil

ROUNDS = 5  # to find processes that are born while others are killed


def end_marked(variable: str, value: str) -> int:
    """Kill every process that has this mark, until there is none. Returns how many there were."""
    ended = 0
    for _ in range(ROUNDS):
        found = [process for process in psutil.process_iter() if _bears(process, variable, value)]
        for process in found:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(found, timeout=1.0)
        ended += len(found)
        if not found:
            break
    return ended


def _bears(process: psutil.Process, variable: str, value: str) -> bool:
    with suppress(psutil.Error, OSError):  # it has ended, or is not ours to look at
        return process.pid != os.getpid() and bool(process.environ().get(variable) == value)
    return False
