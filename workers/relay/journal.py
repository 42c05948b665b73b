"""The journal `transitions.jsonl` (SSOT 7.2.1): every event once, in commit order, one canonical event a line.

The file itself says where it stands: its last whole line is compared with the database's cursor, so that a process
killed anywhere leaves neither a gap nor a repeat. What is full goes aside as `transitions.NNNNNN.DATE.jsonl`.
"""

import fcntl
import json
import os
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import Connection, RowMapping

from db import history
from workers.relay import Destination, Place
from workers.tail import Tail, read_tail
from workflows.errors import InterlockError
from workflows.events import line, timestamp

ACTIVE, LOCK, PARTS = "transitions.jsonl", "transitions.lock", "transitions.*.*.jsonl"
START: Place = (0, 0)


class JournalFault(InterlockError):
    """The journal cannot be continued where it lies. Nothing is lost: history is in PostgreSQL and carried later."""


class Journal(Destination):
    """The journal as a destination of the relay; one writer at a time, by a lock that ends with its process.

    Args:
        directory: where it lies; made if nothing was ever written, else it must be there.
        max_bytes: a part that would grow beyond this is set aside first.
        daily: a part holds the events of one day (UTC).
    """

    name = "journal"

    def __init__(self, directory: Path, *, max_bytes: int, daily: bool) -> None:
        self._directory, self._max_bytes, self._daily = directory, max_bytes, daily
        self._lock: int | None = None
        self._file: int | None = None
        self._last: Tail | None = None
        self._size, self._day = 0, ""

    def stands_at(self, connection: Connection, cursor: Place) -> Place:
        """Where the last whole line stands; what was half written behind it is cut off.

        Raises:
            JournalFault: the directory is gone, another process writes, or the file is another database's.
        """
        if self._file is None:
            self._open(cursor)
        elif self._last is not None and self._last.place == cursor:
            return cursor
        tail = self._last = self._settled(cursor)
        if tail is None:
            return START
        if tail.place != cursor and not history.has(connection, tail.place, tail.hash):
            raise JournalFault(
                f"{self._directory / ACTIVE} ends with event {tail.event_id}, which this database has not: history"
                " was cut or restored from a backup, or the file is another database's. `interlock audit verify` says"
                f" which events are gone; then {set_aside(self._directory)}"
            )
        return tail.place

    def carry(self, connection: Connection, events: Sequence[RowMapping]) -> None:
        """Append the events, a line each, and see them on the disk. Raises `OSError`, and `JournalFault` as above."""
        waiting: list[bytes] = []
        for event in events:
            written = line(dict(event)).encode() + b"\n"
            day = timestamp(event["created_at"])[:10]
            if self._size and (self._size + len(written) > self._max_bytes or (self._daily and day > self._day)):
                self._append(waiting)
                self._set_aside()
            if not self._size:
                self._day = day
            self._size += len(written)
            waiting.append(written)
        self._append(waiting)
        last = events[-1]
        self._last = Tail((last["xid"], last["position"]), bytes(last["hash"]).hex(), "")

    def close(self) -> None:
        """Close the file, and let another process write."""
        for handle in (self._file, self._lock):
            if handle is not None:
                os.close(handle)
        self._file = self._lock = self._last = None

    def _open(self, cursor: Place) -> None:
        if cursor == START:
            self._directory.mkdir(parents=True, exist_ok=True)
        if not self._directory.is_dir():
            raise JournalFault(
                f"the journal's directory {self._directory} is gone. Bring it back (a mount?), or make it anew:"
                " the journal is then written again from the beginning of history"
            )
        self._lock = os.open(self._directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise JournalFault(
                f"another process writes {self._directory / ACTIVE}; it goes on when that one ends"
            ) from None
        self._begin()

    def _begin(self) -> None:
        path = self._directory / ACTIVE
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        self._flush_directory()
        self._size = os.fstat(self._file).st_size
        self._day = _first_day(path) if self._size else ""

    def _settled(self, cursor: Place) -> Tail | None:
        """The last whole line of the journal, after cutting what is not whole; None where there is none."""
        assert self._file is not None
        tail, whole = read_tail(self._file, cursor)
        if whole != self._size:
            os.ftruncate(self._file, whole)
            os.fsync(self._file)
            self._size = whole
            self._day = _first_day(self._directory / ACTIVE) if whole else ""
        return tail or last_of_parts(self._directory)

    def _append(self, waiting: list[bytes]) -> None:
        assert self._file is not None
        if not waiting:
            return
        left = memoryview(b"".join(waiting))
        waiting.clear()
        while left:
            left = left[os.write(self._file, left) :]
        os.fsync(self._file)

    def _set_aside(self) -> None:
        assert self._file is not None
        numbers = [_number(path) for path in parts(self._directory)]
        path = self._directory / f"transitions.{max(numbers, default=0) + 1:06}.{self._day}.jsonl"
        os.fchmod(self._file, 0o440)
        os.rename(self._directory / ACTIVE, path)
        os.close(self._file)
        self._begin()

    def _flush_directory(self) -> None:
        handle = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def set_aside(directory: Path) -> str:
    """What an operator types so that a journal that does not fit is kept, and another is written from history."""
    lost = directory / "lost"
    return f"`mkdir {lost} && mv {directory}/transitions*.jsonl {lost}`: it is written anew from history"


def parts(directory: Path) -> list[Path]:
    """What was set aside, oldest first."""
    return sorted(directory.glob(PARTS), key=_number)


def files(directory: Path) -> list[Path]:
    """The whole journal in order, the part being written last."""
    active = directory / ACTIVE
    return [*parts(directory), *([active] if active.exists() else [])]


def last_of_parts(directory: Path) -> Tail | None:
    """The last line that was set aside. Raises `JournalFault` where it cannot be read: it was whole when it was."""
    for path in reversed(parts(directory)):
        with path.open("rb") as part:
            tail, whole = read_tail(part.fileno(), START)
            size = os.fstat(part.fileno()).st_size
        if whole != size or tail is None:
            raise JournalFault(f"{path} is damaged behind byte {whole}: `interlock audit validate {path}` says where")
        return tail
    return None


def _number(path: Path) -> int:
    number = path.name.split(".")[1]
    return int(number) if number.isdigit() else 0


def _first_day(path: Path) -> str:
    with path.open("rb") as opened:
        try:
            return str(json.loads(opened.readline())["timestamp"])[:10]
        except (ValueError, KeyError, TypeError):
            return ""
