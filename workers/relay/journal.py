"""The journal `transitions.jsonl` (EVENT-5): every event once, in commit order, one canonical event a line.

The file itself records how far it got: its last whole line is compared with the database's cursor, so a process killed
at any point leaves neither a gap nor a repetition. A full file is renamed to `transitions.NNNNNN.DATE.jsonl`.
"""

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import Connection, RowMapping

from interlock.db.core import history
from interlock.workers.relay.journal_tail import Tail, ends_at, read_tail
from interlock.workers.relay.relay import Destination, Place
from interlock.workers.system.write_once import flush_directory
from interlock.workflows.audit.events import line, timestamp
from interlock.workflows.errors import InterlockError
from interlock.workflows.input.json_text import read
from interlock.workflows.output.suggestions import offered

ACTIVE, LOCK, PARTS = "transitions.jsonl", "transitions.lock", "transitions.*.*.jsonl"
START: Place = (0, 0)


class JournalFault(InterlockError):
    """The journal file cannot be continued. Nothing is lost: history is in PostgreSQL and is carried over later."""


class Journal(Destination):
    """The journal as a destination of the relay. A file lock, freed when its process ends, allows one writer at a time.

    Args:
        directory: where the journal is. Created if nothing was ever written; otherwise it must exist.
        max_bytes: the file is set aside before an event would make it larger than this.
        daily: a file holds the events of one day (UTC).
    """

    name = "journal"

    def __init__(self, directory: Path, *, max_bytes: int, daily: bool) -> None:
        self._directory, self._max_bytes, self._daily = directory, max_bytes, daily
        self._lock: int | None = None
        self._file: int | None = None
        self._last: Tail | None = None
        self._size, self._day = 0, ""

    def lost(self, connection: Connection) -> bool:
        """Whether its last line is not that of its cursor's event: it is gone or torn, or a part was set aside."""
        try:
            with (self._directory / ACTIVE).open("rb") as file:
                return not ends_at(file.fileno(), history.read_cursor(connection, self.name))
        except OSError:
            return True

    def position(self, connection: Connection, cursor: Place) -> Place:
        """The place of the last whole line. A half-written line behind it is cut off.

        Raises:
            JournalFault: the directory is gone, another process writes, or the file belongs to another database.
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
                f"{self._directory / ACTIVE} ends with event {tail.event_id}, which this database does not have:"
                " history was cut or restored from a backup, or the file is another database's."
                f" `interlock audit verify` shows which events are gone; then {set_aside(self._directory)}"
            )
        return tail.place

    def carry(self, connection: Connection, events: Sequence[RowMapping]) -> None:
        """Append the events, one a line, and fsync. Raises `OSError`, and `JournalFault` as `position` does."""
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
        """Close the file and free the lock, so that another process may write."""
        for handle in (self._file, self._lock):
            if handle is not None:
                os.close(handle)
        self._file = self._lock = self._last = None

    def _open(self, cursor: Place) -> None:
        if cursor == START:
            self._directory.mkdir(parents=True, exist_ok=True)
        if not self._directory.is_dir():
            raise JournalFault(
                f"the journal's directory {self._directory} is gone. Mount or restore it, or create it"
                " empty: the journal is then written again from the first event"
            )
        self._lock = os.open(self._directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise JournalFault(
                f"another process writes {self._directory / ACTIVE}; this one continues when that one ends"
            ) from None
        self._begin()

    def _begin(self) -> None:
        path = self._directory / ACTIVE
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        flush_directory(self._directory)
        self._size = os.fstat(self._file).st_size
        self._day = _first_day(path) if self._size else ""

    def _settled(self, cursor: Place) -> Tail | None:
        """The last whole line of the journal, after cutting off what follows it; None if there is none."""
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
        numbers = [number(path) for path in parts(self._directory)]
        path = self._directory / f"transitions.{max(numbers, default=0) + 1:06}.{self._day}.jsonl"
        os.rename(self._directory / ACTIVE, path)
        os.fchmod(self._file, 0o440)  # after the rename: a read-only active file could not be opened again after a kill
        os.close(self._file)
        self._begin()


def set_aside(directory: Path) -> str:
    """The command for an operator that moves a journal away that does not fit, so that it is rewritten from history."""
    lost = directory / "lost"
    return f"`mkdir {lost} && mv {directory}/transitions*.jsonl {lost}`: it is written anew from history"


def parts(directory: Path) -> list[Path]:
    """The files that were set aside, oldest first."""
    return sorted(directory.glob(PARTS), key=number)


def files(directory: Path) -> list[Path]:
    """All files of the journal in order, the active one last."""
    active = directory / ACTIVE
    return [*parts(directory), *([active] if active.exists() else [])]


def last_of_parts(directory: Path) -> Tail | None:
    """The last line that was set aside. Raises `JournalFault` if it is damaged, since whole files are set aside."""
    for path in reversed(parts(directory)):
        with path.open("rb") as part:
            tail, whole = read_tail(part.fileno(), START)
            size = os.fstat(part.fileno()).st_size
        if whole != size or tail is None:
            raise JournalFault(
                f"{path} is damaged after byte {whole}: {offered('audit', 'validate', path)} shows where"
            )
        return tail
    return None


def number(path: Path) -> int:
    """The number of a part."""
    digits = path.name.split(".")[1]
    return int(digits) if digits.isdigit() else 0


def _first_day(path: Path) -> str:
    with path.open("rb") as opened:
        try:
            return str(read(opened.readline())["timestamp"])[:10]
        except (ValueError, KeyError, TypeError):
            return ""
