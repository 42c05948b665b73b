"""What `doctor` says of the journal: can it be written, does it keep up, does it end where history says."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from sqlalchemy import Connection

from db import history
from workers.journal import ACTIVE, START, Journal, JournalFault, last_of_parts, set_aside
from workers.tail import read_tail

LATE_SECONDS = 10.0
ROOM_BYTES = 256 * 2**20
ROOM = "free the disk, or move the journal (INTERLOCK_STATE); nothing is lost meanwhile"

Trouble = tuple[Literal["ok", "warn", "fail"], str, str]  # level, what it is, what would help


def inspect(connection: Connection, directory: Path) -> Iterator[Trouble]:
    """Look at the journal; nothing is changed.

    Raises:
        DBAPIError, OSError: PostgreSQL, or a file, cannot be read.
    """
    cursor = history.cursor_seen(connection, Journal.name)
    lag = history.lag_seconds(connection, Journal.name)
    if not directory.is_dir():
        if cursor == START:
            yield "ok", f"{directory} is made with the first event", ""
        else:
            yield "fail", f"{directory} is gone; events wait for it in PostgreSQL", f"mount it, or mkdir {directory}"
        return
    if not os.access(directory, os.W_OK | os.X_OK):
        yield "fail", f"{directory} cannot be written", f"chown or chmod it; {ROOM}"
    free = shutil.disk_usage(directory).free
    if free < ROOM_BYTES:
        yield "fail" if lag > LATE_SECONDS else "warn", f"{free / 2**20:,.0f} MiB are left on {directory}", ROOM
    try:
        says, cure = _ends(connection, directory), f"interlock audit verify; then {set_aside(directory)}"
    except JournalFault as fault:
        says, cure = str(fault), "docs/audit.md, `The journal does not continue`"
    if says:
        yield "fail", says, cure
    elif lag > LATE_SECONDS:
        yield "warn", f"{lag:.1f} s behind", "is beat up? `relay_failed` in the log of the triggers' node says why"
    else:
        yield "ok", f"{directory / ACTIVE}, {lag:.1f} s behind", ""


def _ends(connection: Connection, directory: Path) -> str:
    cursor, tail = history.cursor_seen(connection, Journal.name), None
    if (directory / ACTIVE).exists():
        with (directory / ACTIVE).open("rb") as active:
            tail, _ = read_tail(active.fileno(), cursor)
    tail = tail or last_of_parts(directory)
    if tail is None or history.has(connection, tail.place, tail.hash):
        return ""
    return f"{directory / ACTIVE} ends with event {tail.event_id}, which this database does not have"
