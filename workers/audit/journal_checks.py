"""Compares the journal with history, which also shows what was committed and removed again between two anchors."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import BinaryIO, NamedTuple

from sqlalchemy import Engine

from interlock.db.audit.commit_order import Place
from interlock.db.audit.snapshot import Snapshot
from interlock.db.audit.verify import Verdict
from interlock.workers.audit import log_comparison
from interlock.workers.audit.log_comparison import START, Log, LogLine
from interlock.workers.relay import journal
from interlock.workers.relay.journal_tail import read_tail

MARGIN = timedelta(minutes=10)  # for differing clocks, and for transactions that ran while the anchor was made


class Files(NamedTuple):
    """The journal as it was at one instant.

    Attributes:
        parts: the files that were set aside, oldest first.
        active: the file that is written, and the bytes that it had; None: there is none.
    """

    parts: Sequence[Path]
    active: tuple[BinaryIO, int] | None


def check(database: Engine, verdict: Verdict, directory: Path, *, since: datetime) -> None:
    """Check that the journal's lines match their hashes, and that it and history have the same events in one order.

    What history has after the journal's last line is not written yet; what was before the oldest part that is here was
    moved elsewhere. Neither is a problem.

    Args:
        database: where history is.
        verdict: collects the problems, and what was not compared.
        directory: the journal's; it may contain none.
        since: check the files that were written or changed since then.

    Raises:
        OSError: a file cannot be read.
    """
    with ExitStack() as opened:
        files = _files(opened, directory)
        if not files.parts and files.active is None:
            verdict.not_compared.append(f"the journal: there is none in {directory}")
            return
        _numbers(verdict, files.parts)
        # A file's ctime is the system's own: no call sets it back, as `utime` does the time of the last change.
        oldest = (since - MARGIN).timestamp()
        skipped = next((n for n, path in enumerate(files.parts) if path.stat().st_ctime >= oldest), len(files.parts))
        log = Log("the journal", _lines(verdict, files, skipped), _beginning(files.parts, skipped))
        with Snapshot(database) as snapshot:  # taken after the file's size: each line's event was committed before
            waiting = log_comparison.compare(database, snapshot, verdict, log)
        if skipped:
            name, since_when = files.parts[skipped - 1].name, f"not changed since {since:%Y-%m-%d %H:%M} UTC"
            verdict.not_compared.append(f"the journal up to {name}: {since_when}; --journal compares it too")
        if waiting:
            verdict.not_compared.append(f"the journal: {waiting} events are not written to it yet")


def _files(opened: ExitStack, directory: Path) -> Files:
    """The active file is opened before the others are listed: it may become one of them at any time."""
    try:
        active = opened.enter_context((directory / journal.ACTIVE).open("rb"))
    except FileNotFoundError:
        return Files(journal.parts(directory), None)
    status = os.fstat(active.fileno())
    parts = [path for path in journal.parts(directory) if not os.path.samestat(path.stat(), status)]
    return Files(parts, (active, status.st_size))


def _numbers(verdict: Verdict, parts: Sequence[Path]) -> None:
    numbers = list(map(journal.number, parts))
    if parts and numbers[0] > 1:
        verdict.not_compared.append(f"the journal before {parts[0].name}: parts up to {numbers[0] - 1} are elsewhere")
    for path, before, number in zip(parts[1:], numbers, numbers[1:], strict=False):
        if number > before + 1:
            gone = f"parts {before + 1} to {number - 1} are" if number > before + 2 else f"part {before + 1} is"
            verdict.note(
                str(path), None, f"gap: {gone} missing before it; only the oldest parts may be moved elsewhere"
            )


def _beginning(parts: Sequence[Path], skipped: int) -> Place | None:
    """The place behind which the files that are read begin; None: with their first line, whatever that is."""
    if skipped == 0:
        return None if parts and journal.number(parts[0]) > 1 else START
    with parts[skipped - 1].open("rb") as part:
        tail, _ = read_tail(part.fileno(), journal.START)
    return tail.place if tail else None


def _lines(verdict: Verdict, files: Files, skipped: int) -> Iterator[LogLine]:
    for path in files.parts[skipped:]:
        with path.open("rb") as part:
            for number, line in enumerate(part, 1):
                yield from log_comparison.read_line(verdict, line, f"{path}:{number}")
    if files.active is None:
        return
    active, left = files.active
    for number, line in enumerate(active, 1):
        left -= len(line)
        if left < 0 or not line.endswith(b"\n"):
            return  # it was not there at the beginning, is being written, or its writer was killed
        yield from log_comparison.read_line(verdict, line, f"{active.name}:{number}")
