"""The lock on `<home>/lock`, held by the process that supervises the home. It ends with that process."""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator

from interlock.supervisor.home import Home
from interlock.workflows.errors import AlreadyRunning, OthersHome

BORROWED_TRIES = 10


@contextlib.contextmanager
def held(home: Home) -> Iterator[int]:
    """Hold the lock for the duration of a block; yields its file descriptor. Raises `AlreadyRunning`."""
    handle = os.open(home.lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not _taken(handle):
            raise AlreadyRunning(already(home))
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        yield handle
    finally:
        os.close(handle)


def _taken(handle: int) -> bool:
    """Whether we got the lock. Retries, because `holder` takes the lock for an instant."""
    for _ in range(BORROWED_TRIES):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(0.02)
    return False


def holder(home: Home) -> int | None:
    """The pid of the running supervisor; None if none runs; 0 if it has not written its pid yet."""
    try:
        handle = os.open(home.lock, os.O_RDWR)
    except FileNotFoundError:
        return None
    except PermissionError:
        raise OthersHome(home.lock) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return int(os.pread(handle, 20, 0) or 0)
    else:
        return None
    finally:
        os.close(handle)


def is_still_held(home: Home, handle: int) -> bool:
    """Whether the lock that we hold is still the one in the home; False after the directory was deleted."""
    try:
        return os.path.samestat(os.fstat(handle), home.lock.stat())
    except FileNotFoundError:
        return False


def already(home: Home) -> str:
    """The message of `AlreadyRunning` for a home in use."""
    return (
        f"Interlock is already running in {home.path} (pid {holder(home) or 'unknown'}). Look at it with "
        "`interlock status`, stop it with `interlock down`, or choose another directory with INTERLOCK_HOME."
    )
