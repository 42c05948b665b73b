"""The journal against history: it saw what was committed between two anchors."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import Engine

from db import anchors
from db.anchors import Head
from db.audit import Verdict
from db.connect import transaction
from workers import journal
from workers.auditing import heads
from workflows.events import chained, read

MARGIN = timedelta(minutes=10)  # clocks that differ, and transactions that ran while the anchor was made


def check(database: Engine, verdict: Verdict, directory: Path, *, every_line: bool) -> None:
    """Check that the journal's lines are what was hashed, and that history still tells them.

    Args:
        database: where history is.
        verdict: gets the problems.
        directory: where the journal lies; none is fine.
        every_line: all of it; otherwise the files that were written to since the newest anchor, which saw the others.

    Raises:
        OSError: a file cannot be read.
    """
    since = None if every_line else _newest_anchor(database)
    for path in journal.files(directory):
        if path.name == journal.ACTIVE or since is None or _written(path) >= since - MARGIN:
            heads.compare(database, verdict, _told(verdict, path), f"the journal {path.name}")


def _newest_anchor(database: Engine) -> datetime | None:
    with transaction(database) as connection:
        row = anchors.newest(connection)
    return row["made_at"] if row else None


def _written(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)


def _told(verdict: Verdict, path: Path) -> Iterator[Head]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.endswith(b"\n") and path.name == journal.ACTIVE:
                return  # it is being written, or was when somebody was killed
            try:
                event = read(line)
                yield _head(event)
                says = None if chained(event) == event["hash"] else "changed: its hash is not that of its content"
            except (ValueError, KeyError, TypeError):
                says = "no event"
            if says:
                verdict.note(f"{path}:{number}", None, f"{says}; `interlock audit validate` says more")


def _head(event: dict[str, Any]) -> Head:
    context = event["context"]
    return Head(UUID(context["workflow_id"]), int(context["seq"]), bytes.fromhex(event["hash"]))
