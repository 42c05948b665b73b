"""Files that are written once: complete and on disk under their name, or not there; read-only from then on."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def put(path: Path) -> Iterator[BinaryIO]:
    """A file to write; it gets its name when the block ends without an error. An existing file stays as it is."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.chmod(0o440)
        if not path.exists():
            draft.rename(path)
            flush_directory(path.parent)
    finally:
        draft.unlink(missing_ok=True)


def create(path: Path, mode: int, content: bytes) -> None:
    """Create a file and flush it to disk. Raises `FileExistsError` if there is something of that name already."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def flush_directory(directory: Path) -> None:
    """Sync a directory's entries to disk."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sha256_of(path: Path) -> str:
    """A file's SHA-256, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
