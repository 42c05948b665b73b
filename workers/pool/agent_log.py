"""What an agent says while it works on a task: appended to the file of its attempt, where a command's output would be.

Several processes may append, one after another under a lock. The agent's report seals the file: it is read-only from
then on, and the event that ends the attempt has its length and SHA-256.
"""

import fcntl
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from interlock.workers.pool.output_files import CHUNK_BYTES, Kept

SEALED = 0o400


def append(path: Path, text: str, limit_bytes: int) -> bool:
    """Append to the file of an attempt, which is created with its folders.

    Args:
        path: the attempt's (`output_files.path_of`).
        text: what to append.
        limit_bytes: the most that the file may hold.

    Returns:
        Whether it was kept: not if the file would hold too much, or is sealed.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    content = text.encode("utf-8", "replace")
    with _locked(path, os.O_RDWR | os.O_APPEND | os.O_CREAT) as file:
        known = os.fstat(file)
        if known.st_size + len(content) > limit_bytes or stat.S_IMODE(known.st_mode) == SEALED:
            return False
        left = memoryview(content)
        while left:
            left = left[os.write(file, left) :]
        return True


def sealed(path: Path) -> Kept | None:
    """Seal the file of an attempt, and flush it to disk. None: nothing was appended here.

    Raises:
        OSError: it cannot be read.
    """
    digest, length = hashlib.sha256(), 0
    try:
        with _locked(path, os.O_RDONLY) as file:
            os.fchmod(file, SEALED)
            while piece := os.read(file, CHUNK_BYTES):
                digest.update(piece)
                length += len(piece)
            os.fsync(file)
    except FileNotFoundError:
        return None
    return Kept(length, digest.hexdigest())


@contextmanager
def _locked(path: Path, flags: int) -> Iterator[int]:
    file = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
    finally:
        os.close(file)
