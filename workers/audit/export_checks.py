"""Compares exports on file with their record and with history: every event up to the last export is in exactly one."""

import gzip
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Engine

from interlock.db.audit import commit_order, exports
from interlock.db.audit.commit_order import Place
from interlock.db.audit.snapshot import Snapshot
from interlock.db.audit.verify import Verdict
from interlock.db.connection import one_snapshot, transaction
from interlock.db.core import history
from interlock.workers.audit import log_comparison, log_validation
from interlock.workers.audit.exports import CURSOR, EVENTS, FIRST, MANIFEST
from interlock.workers.audit.journal_checks import MARGIN
from interlock.workers.audit.log_comparison import START, Log, LogLine, place_in
from interlock.workers.audit.signed_checkpoints import TrustedKeys
from interlock.workers.system import write_once
from interlock.workflows.input.json_text import read

EXPORT = re.compile(r"export-(\d+)\..+")


class Export(NamedTuple):
    """An export on file whose manifest is the one that was recorded and signed."""

    number: int
    path: Path
    made_at: datetime
    behind: Place
    upto: Place
    events: int
    previous: str


class RecordedExports(NamedTuple):
    """What the database records: number -> SHA-256 of the manifest, and the cursor."""

    manifests: Mapping[int, str]
    cursor: Place


def check(
    database: Engine,
    verdict: Verdict,
    directory: Path,
    keys: TrustedKeys,
    named: Mapping[int, tuple[int, str]],
    *,
    since: datetime | None,
) -> None:
    """Check that each export is there, as it was written, and that it and history have the same events.

    Args:
        database: where history is.
        verdict: collects the problems, and what was not compared.
        directory: that of the exports.
        keys: the trusted public keys.
        named: anchor's number -> number and manifest's SHA-256 of the export that its record names.
        since: compare the events of exports that were made since then; of others only how many there are. None: of all.

    Raises:
        DBAPIError: the database is unreachable.
        OSError: a file cannot be read.
    """
    with transaction(database) as connection:
        one_snapshot(connection)
        known = RecordedExports(exports.manifests(connection), history.read_cursor(connection, CURSOR))
    _named(verdict, known.manifests, named)
    sound = _on_file(verdict, directory, known.manifests, keys)
    _ends(verdict, known, sound)
    _contiguous(verdict, known.manifests, sound)
    whole = [each for each in sound if since is not None and _is_new(each, since)]
    _count(database, verdict, [each for each in sound if each not in whole])
    for each in whole:
        log = Log(f"export {each.number}", _lines(verdict, each.path / EVENTS), each.behind, each.upto)
        with Snapshot(database) as snapshot:
            log_comparison.compare(database, snapshot, verdict, log)


def _named(verdict: Verdict, known: Mapping[int, str], named: Mapping[int, tuple[int, str]]) -> None:
    for anchor, (number, manifest) in named.items():
        if known.get(number) != manifest:
            how = "another manifest" if number in known else "no such export"
            verdict.note(f"export {number}", None, f"anchor {anchor} names it, and the database has {how}")


def _on_file(verdict: Verdict, directory: Path, known: Mapping[int, str], keys: TrustedKeys) -> list[Export]:
    sound: list[Export] = []
    there = _manifests(directory)
    if known and not directory.parent.exists():
        verdict.not_compared.append(f"{len(known)} exports: {directory.parent} is not on this machine")
        return sound
    for number in sorted(known.keys() - there.keys()):
        verdict.note(f"export {number}", None, f"is gone: {directory} does not have it; put a copy back")
    for number, path in sorted(there.items()):
        if number not in known:  # one after the last is not recorded yet
            if number < max(known, default=0):
                verdict.note(str(path), None, "the database does not know this export, but a later one")
        elif write_once.sha256_of(path) != known[number]:
            verdict.note(str(path), None, "changed: it is not the manifest that was written")
        else:
            sound += _sealed(verdict, number, path, keys)
    return sound


def _sealed(verdict: Verdict, number: int, path: Path, keys: TrustedKeys) -> Iterator[Export]:
    """The export, if it is signed and its files are those of its manifest."""
    broken = list(log_validation.seals([path.parent], keys))
    for each in broken:
        verdict.note(each.file, None, each.message)
    if broken:
        return
    try:
        manifest: Mapping[str, Any] = read(path.read_bytes())
        behind, upto = place_in(manifest["behind"]), place_in(manifest["upto"])
        made_at, events = datetime.fromisoformat(manifest["made_at"]), int(manifest["events"])
        yield Export(number, path.parent, made_at, behind, upto, events, str(manifest["previous"]))
    except (ValueError, KeyError, TypeError):
        verdict.note(str(path), None, "is not a manifest of an export")


def _ends(verdict: Verdict, known: RecordedExports, sound: Iterable[Export]) -> None:
    """Check that the cursor stands where the last export ends, so that the next one leaves nothing out."""
    last = max(known.manifests, default=0)
    end = START if last == 0 else next((each.upto for each in sound if each.number == last), None)
    if end not in (None, known.cursor):
        message = f"the cursor `export` stands at {known.cursor}, but export {last} ends at {end}: what is between is"
        verdict.note("cursor export", None, f"{message} in no export, or would be in two")


def _contiguous(verdict: Verdict, known: Mapping[int, str], sound: Iterable[Export]) -> None:
    ends = {each.number: each.upto for each in sound} | {0: START}
    for number in range(1, max(known, default=0)):
        if number not in known:
            verdict.note(f"export {number}", None, "gap: the database has no record of it, but of a later one")
    for each in sound:
        before = each.number - 1
        follows = each.behind == ends.get(before, each.behind) and each.previous == known.get(before, FIRST)
        if (before in known or before == 0) and not follows:
            verdict.note(f"export {each.number}", None, f"does not begin where export {before} ends")


def _is_new(export: Export, since: datetime) -> bool:
    return export.made_at >= since - MARGIN


def _count(database: Engine, verdict: Verdict, sound: Iterable[Export]) -> None:
    with transaction(database) as connection:
        for each in sound:
            found = commit_order.count_between(connection, each.behind, each.upto)
            if found != each.events:
                message = f"has {each.events} events, where history has {found}; `interlock audit verify --journal`"
                verdict.note(f"export {each.number}", None, f"{message} names them")


def _lines(verdict: Verdict, path: Path) -> Iterator[LogLine]:
    number = 0
    try:
        with gzip.open(path) as lines:
            for number, line in enumerate(lines, 1):
                yield from log_comparison.read_line(verdict, line, f"{path}:{number}")
    except (OSError, EOFError, zlib.error) as torn:
        verdict.note(f"{path}:{number + 1}", None, f"the packed file ends or is damaged here: {torn}")


def _manifests(place: Path) -> dict[int, Path]:
    found = [(EXPORT.fullmatch(path.parent.name), path) for path in place.glob(f"export-*/{MANIFEST}")]
    return {int(named[1]): path for named, path in sorted(found, key=lambda each: str(each[1])) if named}
