"""Processes of this home that outlived their supervisor: found by what they hold, not by remembered pids.

A pid is reused after a reboot or in a small container; the directory a server works in and the mark in a
part's environment are not.
"""

import contextlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path

import psutil

from supervisor.home import Home
from workflows.errors import ServerFault

MARK = "INTERLOCK_SUPERVISED"  # in the environment of every part: the home it belongs to
POLITE_SECONDS = 8.0
ROUNDS = 3


def of_home(home: Home, data: Iterable[Path]) -> list[psutil.Process]:
    """Every process that works in one of the `data` directories or carries the mark of this home."""
    directories = {str(directory) for directory in data}
    return [process for process in psutil.process_iter() if _belongs(process, str(home.path), directories)]


def _belongs(process: psutil.Process, home: str, directories: set[str]) -> bool:
    return process.pid != os.getpid() and (_works_in(process, directories) or _is_marked(process, home))


# What we may not look at, or what is gone or a zombie, is none of ours.


def _works_in(process: psutil.Process, directories: set[str]) -> bool:
    with contextlib.suppress(psutil.Error, OSError):
        return process.cwd().removesuffix(" (deleted)") in directories
    return False


def _is_marked(process: psutil.Process, home: str) -> bool:
    with contextlib.suppress(psutil.Error, OSError):
        return bool(process.environ().get(MARK) == home)
    return False


def end_all(home: Home, data: Iterable[Path]) -> bool:
    """Stop every process of this home, and those they started meanwhile. Returns whether there was any.

    Raises `ServerFault` when some stay although killed (stuck in the kernel, say).
    """
    places = list(data)
    for round_number in range(ROUNDS):
        left = of_home(home, places)
        if not left:
            return round_number > 0
        end(left)
    raise ServerFault(f"these processes of {home.path} cannot be stopped: {[process.pid for process in left]}")


def end(found: list[psutil.Process]) -> None:
    """Ask them to stop, then kill what is left. Returns when none of them runs."""
    for process in found:
        # A postmaster takes SIGINT for "stop now, cleanly", where SIGTERM would wait for every client.
        _signal(process, signal.SIGINT if _is_postmaster(process) else signal.SIGTERM)
    _, stubborn = psutil.wait_procs(found, timeout=POLITE_SECONDS)
    for process in stubborn:
        _signal(process, signal.SIGKILL)
    psutil.wait_procs(stubborn, timeout=POLITE_SECONDS)


def end_backends(data: Path) -> None:
    """Stop what a killed postmaster left working in `data`, and forget its pid file.

    Its shared memory stays in use until the last of them is gone, and no postmaster starts before. Backends
    that wait notice by themselves; one inside a long statement does not.
    """
    orphans = [process for process in psutil.process_iter() if _works_in(process, {str(data)})]
    for orphan in orphans:
        _signal(orphan, signal.SIGQUIT)
    _, stubborn = psutil.wait_procs(orphans, timeout=1.0)
    for orphan in stubborn:
        _signal(orphan, signal.SIGKILL)
    psutil.wait_procs(stubborn, timeout=POLITE_SECONDS)
    # Nobody works in `data` now. Left there, its pid may by now be another process's, which PostgreSQL takes
    # for a live postmaster (in a container, where pids start over, that is the rule).
    (data / "postmaster.pid").unlink(missing_ok=True)


def _is_postmaster(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error, IndexError):
        return Path(process.cmdline()[0]).name == "postgres"
    return False


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)
