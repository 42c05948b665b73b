"""The directory of backups: one process at a time writes there, and deletes what killed ones left."""

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

from interlock.workers.system.safe_remove import remove
from interlock.workflows.errors import Refused

LOCK = ".lock"
PARTIAL = ".partial-"
DRAFT = re.compile(rf"{re.escape(PARTIAL)}\d+-[0-9a-f]{{8}}")
PATIENCE_SECONDS = 10.0  # what is left of a killed backup or drill ends within seconds
PULSE_SECONDS = 0.1


class BackupUnderWay(Refused):
    """Another process is writing into the directory of backups. Wait until it has ended; nothing was changed."""


@contextlib.contextmanager
def exclusively(directory: Path) -> Iterator[int]:
    """Hold the directory's lock for the duration of a block; the directory is created if missing.

    Drafts of killed backups are deleted first. The lock ends with the last process that has the yielded descriptor, so
    no draft is deleted while a program that inherited it still writes there.

    Raises:
        BackupUnderWay: another process has held the lock for 10 s.
        OSError: the directory cannot be created or written.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        lock(
            handle,
            BackupUnderWay(
                f"another backup is being written into {directory}: wait until it has ended, or name another directory"
            ),
        )
        for left in directory.glob(f"{PARTIAL}*"):
            if DRAFT.fullmatch(left.name):
                remove(left)
        yield handle
    finally:
        os.close(handle)


def lock(handle: int, refusal: Refused) -> None:
    """Lock an open file or directory; raises the refusal if another process has held the lock for 10 s."""
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise refusal from None
            time.sleep(PULSE_SECONDS)
        else:
            return
