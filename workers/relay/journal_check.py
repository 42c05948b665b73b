"""The journal check of `doctor`: is it writable, does it keep up, does it end with an event of history?"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from sqlalchemy import Connection

from interlock.db.core import history
from interlock.workers.relay.journal import ACTIVE, START, Journal, JournalFault, last_of_parts, set_aside
from interlock.workers.relay.journal_tail import read_tail

LATE_SECONDS = 10.0
ROOM_BYTES = 256 * 2**20
ROOM = "free disk space, or move the journal (INTERLOCK_STATE); no event is lost meanwhile"

Trouble = tuple[Literal["ok", "warn", "fail"], str, str]  # level, description, remedy


def inspect(connection: Connection, directory: Path) -> Iterator[Trouble]:
    """Check the journal without changing it.

    Raises:
        DBAPIError, OSError: PostgreSQL, or a file, cannot be read.
    """
    cursor = history.read_cursor(connection, Journal.name)
    lag = history.lag_seconds(connection, Journal.name)
    if not directory.is_dir():
        if cursor == START:
            yield "ok", f"{directory} will be created with the first event", ""
        else:
            message = f"{directory} is gone; new events are kept in PostgreSQL until it is back"
            yield "fail", message, f"mount it, or mkdir {directory}"
        return
    if not os.access(directory, os.W_OK | os.X_OK):
        yield "fail", f"{directory} cannot be written", f"chown or chmod it; {ROOM}"
    free = shutil.disk_usage(directory).free
    if free < ROOM_BYTES:
        yield "fail" if lag > LATE_SECONDS else "warn", f"{free / 2**20:,.0f} MiB are left on {directory}", ROOM
    try:
        message, cure = _ends(connection, directory), f"interlock audit verify; then {set_aside(directory)}"
    except JournalFault as fault:
        message, cure = str(fault), "docs/audit.md, `The journal does not continue`"
    if message:
        yield "fail", message, cure
    elif lag > LATE_SECONDS:
        cure = "is beat running? `relay_failed` in the log of the `triggers` node gives the reason"
        yield "warn", f"{lag:.1f} s behind history", cure
    else:
        yield "ok", f"{directory / ACTIVE}, {lag:.1f} s behind history", ""


def _ends(connection: Connection, directory: Path) -> str:
    cursor, tail = history.read_cursor(connection, Journal.name), None
    if (directory / ACTIVE).exists():
        with (directory / ACTIVE).open("rb") as active:
            tail, _ = read_tail(active.fileno(), cursor)
    tail = tail or last_of_parts(directory)
    if tail is None or history.has(connection, tail.place, tail.hash):
        return ""
    return f"{directory / ACTIVE} ends with event {tail.event_id}, which this database does not have"
