"""What tasks print, kept in files on the machine that runs them: one file an attempt, which only the operator can read.

HOME/output/RUN/TASK.CLAIM, named by their ids, so that no name from a plan is part of a path. The event that ends an
attempt has the file's length and SHA-256, so that a changed file is noticed.
"""

import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from interlock.workers.settings import Settings
from interlock.workers.system.safe_walk import plain_file

TAIL_PART = 4  # of what is kept, one part in four is the end of the output
SWEPT = ".swept"  # its time is that of the last sweep
SWEEP_SECONDS = 3600.0
DAY_SECONDS = 86_400.0
CHUNK_BYTES = 1 << 16
LOG_FILE = "log_file"  # the digest of an agent's log, in the event that ends its attempt


@dataclass(frozen=True, slots=True)
class Kept:
    """What was kept of an attempt's output.

    Attributes:
        bytes: the file's length.
        sha256: of its content, in hex.
        left_out_bytes: what was printed but not kept, from the middle.
        fault: why the rest could not be kept, such as a full disk; None: all is as the other fields say.
    """

    bytes: int
    sha256: str
    left_out_bytes: int = 0
    fault: str | None = None


WRITTEN: Mapping[str, type] = {
    "bytes": int,
    "sha256": str,
    "left_out_bytes": int,
    "fault": str,
}  # as `Kept` is in an event


def path_of(settings: Settings, run_id: UUID, task_id: UUID, claim_id: int) -> Path:
    """The file of one attempt. There is none if the attempt printed nothing."""
    return settings.output_directory / str(run_id) / f"{task_id}.{claim_id}"


class OutputFile:
    """Takes the output of one attempt and keeps it in a file, up to a limit: its beginning and its end.

    What cannot be written is lost, with the reason in `Kept.fault`: a task does not fail because its output cannot be
    kept.
    """

    def __init__(self, path: Path, limit_bytes: int) -> None:
        """Creates nothing yet."""
        self._path = path
        self._tail_limit = limit_bytes // TAIL_PART
        self._head_left = limit_bytes - self._tail_limit
        self._tail = bytearray()
        self._seen_in_tail = self._written = 0
        self._hash = hashlib.sha256()
        self._file: int | None = None
        self._fault: str | None = None

    def take(self, piece: bytes) -> None:
        """Take the next bytes of the output."""
        head, rest = piece[: self._head_left], piece[self._head_left :]
        self._head_left -= len(head)
        self._write(head)
        self._seen_in_tail += len(rest)
        self._tail += rest
        if len(self._tail) > 2 * self._tail_limit:  # not for each piece: moving bytes costs more than holding them
            self._forget()

    def end(self) -> Kept:
        """Write what is left, and flush the file to disk before history names its digest."""
        self._forget()
        left_out = self._seen_in_tail - len(self._tail)
        self._write(f"\n[{left_out} bytes left out]\n".encode() if left_out else b"")
        self._write(bytes(self._tail))
        if self._file is not None:
            try:
                os.fsync(self._file)
            except OSError as refused:
                self._fault = self._fault or str(refused)
            os.close(self._file)
        return Kept(self._written, self._hash.hexdigest(), left_out, self._fault)

    def _forget(self) -> None:
        del self._tail[: max(0, len(self._tail) - self._tail_limit)]

    def _write(self, content: bytes) -> None:
        left = memoryview(content)
        try:
            while left and self._fault is None:
                if self._file is None:
                    self._file = _create(self._path)
                done = os.write(self._file, left)
                self._hash.update(left[:done])
                self._written += done
                left = left[done:]
        except OSError as refused:
            self._fault = str(refused)


def _create(path: Path) -> int:
    top = path.parent.parent
    top.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def pieces(path: Path, start: int = 0) -> Iterator[bytes]:
    """The content of a file from an offset on, as far as it is written.

    Raises:
        OSError: there is no such file, it is not a plain file, or it cannot be read.
    """
    with os.fdopen(plain_file(path), "rb") as file:
        file.seek(start)
        while piece := file.read(CHUNK_BYTES):
            yield piece


def as_metadata(kept: Kept) -> dict[str, Any]:
    """What an event says of it."""
    return {name: value for name in Kept.__dataclass_fields__ if (value := getattr(kept, name)) is not None}


def from_metadata(value: object) -> Kept | None:
    """What an event says of it; None: nothing, as that of a lost worker, or of an agent, which chooses its data."""
    if not isinstance(value, dict):
        return None
    said = {name: value[name] for name in WRITTEN if name in value}
    if not said.keys() >= {"bytes", "sha256"} or any(type(each) is not WRITTEN[name] for name, each in said.items()):
        return None
    return Kept(**said)


def sweep(settings: Settings) -> int:
    """Delete files that are older than `INTERLOCK_KEEP_OUTPUT_DAYS`, once an hour; how many they were.

    Each machine sweeps its own files, beside the heartbeats of its workers. Several may sweep at once.

    Raises:
        OSError: a file may not be deleted.
    """
    top, now = settings.output_directory, time.time()
    if not top.is_dir() or _age(top / SWEPT, now) < SWEEP_SECONDS:
        return 0
    (top / SWEPT).touch(mode=0o600)
    deleted = 0
    for each in top.glob("*/*"):
        if _age(each, now) > settings.keep_output_days * DAY_SECONDS:
            each.unlink(missing_ok=True)
            deleted += 1
            with suppress(OSError):  # others are still in it
                each.parent.rmdir()
    return deleted


def _age(path: Path, now: float) -> float:
    try:
        return now - path.lstat().st_mtime
    except FileNotFoundError:
        return now
