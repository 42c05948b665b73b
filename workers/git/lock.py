"""A lock across processes, and across hosts that share the file system: a flock that ends with its holders."""

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from interlock.workflows.errors import InterlockError

LOCK_SECONDS = 120.0
POLL_SECONDS = 0.02


class RepositoryBusy(InterlockError):
    """Another process used the repository for longer than we wait; the message names it. Try again later, or look at
    what that process is doing."""


@contextlib.contextmanager
def held(path: Path, timeout_seconds: float = LOCK_SECONDS, *, vanish: bool = False) -> Iterator[int]:
    """Hold the lock on `path` while the block runs; yields its descriptor, to be inherited by child processes.

    Args:
        path: the lock's file, created if missing.
        timeout_seconds: how long to wait for the holder, in seconds.
        vanish: remove the file at the end, for locks of things that are removed then, too.

    Raises:
        RepositoryBusy: not free in time; names the holder's pid and host.
        FileNotFoundError: the lock file's directory is gone.
    """
    handle = _taken(path, time.monotonic() + timeout_seconds)
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"pid {os.getpid()} on {socket.gethostname()}".encode(), 0)
        yield handle
    finally:
        if vanish:
            path.unlink(missing_ok=True)
        os.close(handle)


def _taken(path: Path, deadline: float) -> int:
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            _wait(handle, path, deadline)
        except BaseException:
            os.close(handle)
            raise
        if os.fstat(handle).st_nlink:
            return handle
        os.close(handle)  # the last holder removed the file: under that name there is a new file now, or none


def _wait(handle: int, path: Path, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                holder = os.pread(handle, 200, 0).decode(errors="replace")
                raise RepositoryBusy(
                    f"the lock {path} is held by {holder or 'a process that left no name'}; try again"
                ) from None
            time.sleep(POLL_SECONDS)
        else:
            return
