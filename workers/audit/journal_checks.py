"""Checks history against the journal, which also has the events committed between two anchors."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from sqlalchemy import Engine

from interlock.db.audit import anchors
from interlock.db.audit.anchors import Head
from interlock.db.audit.verify import Verdict
from interlock.db.connection import transaction
from interlock.workers.audit import chain_heads
from interlock.workers.relay import journal
from interlock.workflows.audit.events import chained
from interlock.workflows.input.json_text import read

MARGIN = timedelta(minutes=10)  # for differing clocks, and for transactions that ran while the anchor was made


def check(database: Engine, verdict: Verdict, directory: Path, *, every_line: bool) -> None:
    """Check that the journal's lines match their hashes, and that history still has their events.

    Args:
        database: where history is.
        verdict: collects the problems.
        directory: the journal's; it may contain none.
        every_line: check all files; otherwise only those written since the newest anchor, which covers the others.

    Raises:
        OSError: a file cannot be read.
    """
    with transaction(database) as connection:
        anchor = None if every_line else anchors.newest(connection)
    since = (anchor["made_at"] - MARGIN).timestamp() if anchor else 0.0
    for path in journal.files(directory):
        if path.name == journal.ACTIVE or path.stat().st_mtime >= since:
            chain_heads.compare(database, verdict, _heads(verdict, path), f"the journal {path.name}")


def _heads(verdict: Verdict, path: Path) -> Iterator[Head]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.endswith(b"\n") and path.name == journal.ACTIVE:
                return  # it is being written, or its writer was killed
            try:
                event = read(line)
                context = event["context"]
                yield chain_heads.seen(context["workflow_id"], context["seq"], event["hash"])
                message = None if chained(event) == event["hash"] else "changed: its hash is not that of its content"
            except (ValueError, KeyError, TypeError):
                message = "no event"
            if message:
                verdict.note(f"{path}:{number}", None, f"{message}; `interlock audit validate` says more")
